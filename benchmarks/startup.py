"""Measures the CPU seconds of short commands: help, a skipped run, refusals, the report.

    python benchmarks/startup.py
    python benchmarks/startup.py --results 10000 --rounds 5

They are CPU seconds of the process and its children, on which other work on the machine has little
effect. The report reads the recorded results and copies of them with other ids.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from record import Row, parser_of, row, save

from oversmoothing.lab.launch.script import run_script

ROOT = Path(__file__).parents[1]
RUN = ["train.py", "trainer.epochs=2", "backbone.depth=2", "seeds=[0]", "logger=none"]
SWEEP = ["-m", "backbone.depth=range(2,102)", "backbone.dropout=0.5,2"]
# name, words of the command, exit code, CPU seconds at most
COMMANDS = (
    ("--help", ["train.py", "--help"], 0, 1),
    ("a misspelt option", ["train.py", "aggregator.gama=1"], 2, 1),
    ("a misspelt group", ["train.py", "data=corra"], 2, 1),
    ("a name that the data do not have", ["train.py", "data.num_nodes=-1"], 2, 3),
    ("an unknown architecture", ["train.py", "experiment=wsss_scenes", "backbone.name=foo"], 2, 3),
    ("a refused sweep of 200 runs", ["train.py", *SWEEP], 2, 5),
)


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        outputs = f"paths.outputs={folder}"
        cpu_seconds([*RUN, outputs], 0)
        skip = ("a run that is already there", [*RUN, outputs], 0, 3)
        rows = [measured(*command, options.rounds) for command in (*COMMANDS, skip)]
        results = Path(folder) / "results"
        shutil.copytree(ROOT / "results", results)
        multiply(results, options.results)
        words = ["--results", str(results), "--page", f"{folder}/page.html"]
        name = f"the report of {options.results:,} results"
        rows.append(measured(name, ["scripts/report.py", *words], 0, 30, 1))
    save(rows)


def measured(name: str, words: Sequence[str], code: int, most: float, rounds: int) -> Row:
    seconds = [cpu_seconds(words, code) for _ in range(rounds)]
    print(f"{name}: {', '.join(f'{value:.2f}' for value in seconds)} s", flush=True)
    return row(name, "CPU s", seconds, goal=most)


def cpu_seconds(words: Sequence[str], code: int) -> float:
    """Measures the CPU seconds of a command, which must end with this exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def multiply(results: Path, number: int) -> None:
    """Adds copies of recorded results with other ids until there are ``number``."""
    path = results / "table5.jsonl"
    recorded = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    made = (recorded[i % len(recorded)] | {"id": f"{i:010x}"} for i in range(number))
    path.write_text("".join(f"{json.dumps(record)}\n" for record in [*recorded, *made]), "utf-8")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=int, default=10_000, help="of the report")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
