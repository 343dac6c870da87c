"""Compares time and peak memory of an epoch on parts of a graph with the full batch.

    python benchmarks/minibatch.py data=sbm data.num_nodes=100000 backbone.depth=8
    python benchmarks/minibatch.py --rounds 0 …     # memory only

The peak is that of a separate process above the graph and the networks, including METIS.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import record
import torch
from measure import Step, interleaved, peak_bytes, peak_megabytes

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.task import loop_of

PARTS = ["trainer=minibatch_cluster", "trainer.num_parts=500", "trainer.parts_per_batch=10"]
FORMS = {
    "full batch": ["trainer=adam"],
    "METIS, 10 of 500 parts": PARTS,
    "METIS, 10 of 500 parts, mean=exact": [*PARTS, "trainer.mean=exact"],
    "random, 50 parts": ["trainer=minibatch_random", "trainer.num_parts=50"],
    "evaluation": ["trainer=minibatch_random"],
}
EVERY = ["task=nodes", "backbone=pyg", "aggregator=centered", "logger=none", "seeds=[0]"]


def main() -> None:
    given = arguments()
    words = [*EVERY, f"threads={given.threads}", *given.words]
    with TemporaryDirectory() as folder:
        if given.peak_of:
            make = prepared(given.peak_of, words, Path(folder))
            print(peak_bytes(lambda: make()(), torch.device("cpu")))
            return
        memory = {form: peak_megabytes("--peak-of", form) for form in FORMS}
        forms = FORMS if given.rounds else ()
        steps = {form: prepared(form, words, Path(folder))() for form in forms}
        seconds = interleaved(steps, given.rounds, time.process_time) if given.rounds else {}
    first, *others = FORMS
    work = " ".join(given.words)
    rows = []
    for form in others:
        name, about = f"{form}: {work}", {"peer": first, "overhead": True}
        peaks, base = [memory[form]], [memory[first]]
        rows.append(record.row(name, "peak MB", peaks, theirs=base, **about))
        if seconds:
            base = seconds[first]
            rows.append(record.row(name, "CPU s per epoch", seconds[form], theirs=base, **about))
    record.save(rows)


def prepared(form: str, words: list[str], folder: Path) -> Callable[[], Step]:
    """Returns the function to measure: an epoch of training, or an evaluation."""
    start = Start(compose_config([*words, *FORMS[form]]))
    network, trainer = start.network([0]), start.parts.trainer

    def make() -> Step:
        recorder = Recorder(folder, [0])
        loop = loop_of(trainer)(network, start.parts.data, trainer, recorder, False)
        return loop._accuracies if form == "evaluation" else loop.step

    return make


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("words", nargs="*", help="as of train.py, such as data=squirrel")
    parser.add_argument("--rounds", type=int, default=3, help="0: no times")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
