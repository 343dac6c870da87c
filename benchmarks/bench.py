"""Measures time and memory beside other code.

    python benchmarks/bench.py                          # lists the cases
    python benchmarks/bench.py centering --help
    OMP_NUM_THREADS=1 python benchmarks/bench.py centering --tokens 196 785 --rounds 9
    python benchmarks/bench.py page --publish           # results/bench/*.md again, nothing measured

A case is a generator of graph_cases.py or image_cases.py; its arguments are the options of the
command. It yields comparisons, which this file measures, and rows that it has
measured itself.

- **Time.** All forms are built, and each runs once or twice as a warm-up. Then they take turns in
  every round: A B C A B C …, so that other work on the machine slows down all of them equally.
  Short steps are repeated within a round. On a CPU, seconds are those that the process computed,
  which other processes disturb less than wall time; on a GPU they are wall time. Set
  OMP_NUM_THREADS=1 on a busy machine: threads that wait for a core distort the ratios.
- **Memory.** The peak of allocated tensors while a form is built and makes a step, on a GPU. What
  was allocated before does not count.
- **Ratio.** The median over the rounds of theirs / ours, or of ours / theirs for a part that adds
  to the peer's work.

Rows are kept in bench/*.csv below outputs/, or below results/ with --publish, with the command,
device, threads and commit. bench/*.md shows them.
"""

import argparse
import datetime
import gc
import inspect
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from bench_page import COLUMNS, SPREAD, Row, load, table, write_page

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.launch.script import Parser, add_publish, run_script, whole
from oversmoothing.lab.store.environment import device, environment
from oversmoothing.lab.store.files import alone

THEMES = ("graphs", "images")  # each with a file of cases, and two files in results/bench
RECORDED = (*THEMES, "sizes")  # the cases of sizes are gone
REPLAYED = 5  # steps before; on a GPU one is replayed from a CUDA graph from the fourth on
SHORTEST = 0.02  # seconds of one form in a round; shorter steps are repeated
MOST = 100  # repetitions
SIZES = {"MB": 1e6, "GB": 1e9}
Step = Callable[[], Any]
Make = Callable[[], Step]


@dataclass(frozen=True)
class Comparison:
    """Forms that are measured together.

    Args:
        ours: work, such as "GCN with LayerNorm, L = 8" -> function that builds it and returns its
            step. What both sides share, such as data, is built before.
        theirs: peer -> the same for the code that ours is compared with; may be empty.
        unit: of the time: begins with "ms", "s" or "CPU s", and says of what.
        peak: measure of the peak memory on a GPU, such as "peak MB"; "": not measured.
        overhead: peers for which the ratio is ours / theirs.
        agree: gets the steps by work and peer; returns how much they differ, and how much they may.
        note: a sentence about the comparison.
    """

    ours: Mapping[str, Make]
    theirs: Mapping[str, Make] = field(default_factory=dict)
    unit: str = "ms"
    peak: str = ""
    overhead: tuple[str, ...] = ()
    agree: Callable[[dict[str, Step]], tuple[float, float]] | None = None
    note: str = ""

    @property
    def key(self) -> str:
        return f"{next(iter(self.ours))}, {self.unit}"

    def rows(self, measure: str, found: Mapping[str, Sequence[float]], note: str) -> list[Row]:
        """One row for every work and peer."""
        given = {"note": "; ".join(filter(None, (self.note, note)))}
        if not self.theirs:
            return [row(work, measure, found[work], **given) for work in self.ours]
        return [
            row(work, measure, found[work], peer, found[peer], peer in self.overhead, **given)
            for work in self.ours
            for peer in self.theirs
        ]


Item = Comparison | list[Row]
Case = Callable[..., Generator[Item, list[Row] | None, None]]


@dataclass(frozen=True)
class Run:
    """What every case can use: device, rounds, folder of results."""

    place: torch.device
    rounds: int
    target: Path

    def clock(self) -> float:
        """Seconds: of the clock when a GPU has finished its work, else of this process's CPU."""
        if self.place.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.place)
        return time.perf_counter()


def row(
    work: str,
    measure: str,
    ours: Sequence[float],
    peer: str = "",
    theirs: Sequence[float] = (),
    overhead: bool = False,
    note: str = "",
) -> Row:
    """Returns one line of the record, from one value for each round."""
    pairs = list(zip(ours, theirs, strict=True)) if peer else []
    ratios = [a / b if overhead else b / a for a, b in pairs]
    shape = ("ours / theirs" if overhead else "theirs / ours") if peer else ""
    return {
        **{"work": work, "measure": measure, **spread("ours", ours), "n": str(len(ours))},
        **{"peer": peer, **spread("theirs", theirs), **spread("ratio", ratios)},
        **{"ratio_of": shape, "note": note},
    }


def spread(name: str, values: Sequence[float]) -> Row:
    """Median, smallest and largest value to four digits."""
    found = (statistics.median(values), min(values), max(values)) if values else ("", "", "")
    texts = [f"{float(f'{value:.4g}'):.12g}" if values else "" for value in found]
    return {name + end: text for end, text in zip(SPREAD, texts)}


def interleaved(steps: Mapping[str, Step], run: Run) -> dict[str, list[float]]:
    """Measures the seconds of every step, one value per round, after a warm-up."""
    numbers = {name: _repetitions(step, run) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(run.rounds):
        for name, step in steps.items():
            seconds[name].append(_seconds(step, numbers[name], run))
    return seconds


def _repetitions(step: Step, run: Run) -> int:
    """Warms up; returns how often the step is repeated within a round."""
    for _ in range(REPLAYED if run.place.type == "cuda" else 0):
        step()
    seconds = _seconds(step, 1, run)
    if seconds < 1:  # the first call also loads libraries
        seconds = _seconds(step, 1, run)
    return min(MOST, max(1, round(SHORTEST / max(seconds, 1e-9))))


def _seconds(step: Step, number: int, run: Run) -> float:
    started = run.clock()
    for _ in range(number):
        step()
    return (run.clock() - started) / number


def peak_bytes(make: Make, place: torch.device) -> int:
    """Measures the peak memory while a form is built and makes a step, above that before."""
    make()()  # loads libraries, and data that are kept
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(place)
    before = torch.cuda.memory_allocated(place)
    make()()
    return torch.cuda.max_memory_allocated(place) - before


def measured(given: Comparison, run: Run) -> tuple[list[Row], str]:
    """Measures a comparison; returns its rows, and what is wrong if the forms do not agree."""
    forms = {**given.ours, **given.theirs}
    steps = {name: make() for name, make in forms.items()}
    note = wrong = ""
    if given.agree:
        gap, allowed = given.agree(steps)
        note = f"the results differ by {gap:.0e}"
        wrong = "" if gap <= allowed else f"{given.key}: {note}, more than {allowed:.0e}"
    factor = 1e3 if given.unit.startswith("ms") else 1.0
    found = interleaved(steps, run)
    scaled = {name: [factor * value for value in values] for name, values in found.items()}
    unit = given.unit if run.place.type == "cpu" else given.unit.removeprefix("CPU ")
    rows = given.rows(unit, scaled, note)
    steps.clear()
    if given.peak and run.place.type == "cuda":
        size = next(SIZES[word] for word in re.findall(r"\w+", given.peak) if word in SIZES)
        peaks = {name: [peak_bytes(make, run.place) / size] for name, make in forms.items()}
        rows += given.rows(given.peak, peaks, "")
    return rows, wrong


def run_case(case: Case, given: Mapping[str, Any], run: Run) -> int:
    """Measures and records all that a case yields; returns the exit code."""
    steps, rows, problems = case(run, **given), None, []
    with suppress(StopIteration):
        while True:
            item = steps.send(rows)
            rows, wrong = _found(item, run)
            problems += filter(None, [wrong])
            if rows:
                save(rows, case, run)
                print(table(rows), end="\n\n", flush=True)
    for problem in problems:
        print(f"error: {problem}")
    return int(bool(problems))


def _found(item: Item, run: Run) -> tuple[list[Row], str]:
    """Measures a comparison, unless it does not fit on the GPU; returns rows as they are."""
    if not isinstance(item, Comparison):
        return item, ""
    try:
        return measured(item, run)
    except torch.OutOfMemoryError:
        print(f"{item.key}: does not fit into the memory of the GPU")
        return [], ""


def save(rows: Sequence[Row], case: Case, run: Run) -> None:
    """Writes rows into the record; each replaces an earlier one of the same work and peer."""
    theme = theme_of(case)
    made = [{**dict.fromkeys(COLUMNS, ""), **each, **_origin(case, run)} for each in rows]
    folder = run.target / "bench"
    with alone(folder / f"{theme}.csv"):
        kept = {_key(old): old for old in load(folder / f"{theme}.csv")}
        kept |= {_key(new): new for new in made}
        lines = sorted(kept.values(), key=lambda each: (each["case"], each["place"]))
        write_csv(folder / f"{theme}.csv", COLUMNS, ([of[key] for key in COLUMNS] for of in lines))
        write_page(folder, theme, titles(theme))


def _key(line: Row) -> tuple[str, ...]:
    return tuple(line[column] for column in ("case", "place", "work", "measure", "peer"))


def _origin(case: Case, run: Run) -> Row:
    """Describes the environment of the running process."""
    found = environment(str(run.place))
    threads = os.environ.get("OMP_NUM_THREADS")
    words = [f"OMP_NUM_THREADS={threads}"] if threads else []
    words += ["python", "benchmarks/bench.py"]
    words += [_public(word) for word in sys.argv[1:] if word != "--publish"]
    return {
        **{"case": case.__name__, "place": run.place.type, "command": shlex.join(words)},
        "commit": f"{found['git']}{', with changes' if found['dirty'] else ''}",
        "device": found["device"] if run.place.type == "cuda" else _processor(),
        **{"threads": str(torch.get_num_threads()), "torch": found["torch"]},
        "date": datetime.date.today().isoformat(),
    }


def _public(word: str) -> str:
    """Shortens an absolute path in the command to its name, since paths differ by machine."""
    return Path(word).name if Path(word).is_absolute() else word


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def cases(theme: str) -> dict[str, Case]:
    """Finds the cases of a theme: the generators in its file; none if it is only recorded."""
    if theme not in THEMES:
        return {}
    module = import_module(_file(theme).stem)
    found = inspect.getmembers(module, inspect.isgeneratorfunction)
    return {name: each for name, each in found if each.__module__ == module.__name__}


def titles(theme: str) -> dict[str, str]:
    """Returns what each case of a theme measures."""
    return {name: inspect.getdoc(case) for name, case in cases(theme).items()}


def case_of(name: str) -> Case:
    """Imports only the file that has the case, since all of them take seconds.

    Raises:
        InputError: no file has it.
    """
    named = {}
    for theme in THEMES:
        text = _file(theme).read_text("utf-8")
        named |= dict.fromkeys(re.findall(r"^def (\w+)\(\s*run: Run", text, re.M), theme)
    if name not in named:
        raise InputError(f"no such case: {name!r}; {meant(name, [*named, 'page'])}")
    return cases(named[name])[name]


def _file(theme: str) -> Path:
    return Path(__file__).with_name(f"{theme.removesuffix('s')}_cases.py")


def theme_of(case: Case) -> str:
    return f"{case.__module__.removesuffix('_cases')}s"


def add_options(parser: argparse.ArgumentParser, case: Case) -> list[str]:
    """Adds an option for each argument of a case; returns their names."""
    given = list(inspect.signature(case).parameters.values())[1:]
    for name, default in ((each.name, each.default) for each in given):
        flag = f"--{name.replace('_', '-')}"
        if name == "words":
            parser.add_argument(name, nargs="*", default=default, help="overrides, as of train.py")
        elif isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="+", type=_reader(default[0]), default=default)
        else:
            parser.add_argument(flag, type=_reader(default), default=default)
    return [each.name for each in given]


def _reader(default: Any) -> Callable[[str], Any]:
    """Returns what reads the value of an option with this default."""
    return whole() if isinstance(default, int) else type(default)


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        every = {name: case for theme in THEMES for name, case in cases(theme).items()}
        print(__doc__, *(f"{n:<18}{inspect.getdoc(c).splitlines()[0]}" for n, c in every.items()),
              sep="\n")  # fmt: skip
        return 0
    case = None if words[0] == "page" else case_of(words[0])
    about = inspect.getdoc(case) if case else "Writes the pages of the record again."
    parser = Parser(about, f"bench.py {words[0]}")
    own = add_options(parser, case) if case else []
    add_publish(parser)
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=whole(), default=5, help="the forms take turns in each")
    options = parser.parse_args(words[1:])
    if case is None:
        folder = options.target / "bench"
        print(*(write_page(folder, theme, titles(theme)) for theme in RECORDED), sep="\n")
        return 0
    run = Run(device(options.device), options.rounds, options.target)
    given = {name: getattr(options, name) for name in own}
    return run_case(case, given, run)


if __name__ == "__main__":
    run_script(import_module("bench").main)  # not of __main__, which the cases cannot import
