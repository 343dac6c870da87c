"""Counts kernel launches and host-device synchronisations in a training step of every task.

    python benchmarks/launches.py

A launch is an operator other than a view, or a copy. Launches are counted on the fake device of the
tests, which has no fused attention, so the parts of attention are counted. A synchronisation is a
copy to the host, or an operator whose result decides sizes. Both are independent of sizes, except
for loops over classes and images, so small runs are used. Needs g++. With a GPU, torch's profiler
shows the real numbers.
"""

import sys
import tempfile
from pathlib import Path

import record

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.tasks.nodes.loop import FullBatchLoop
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchLoop
from oversmoothing.lab.training.loop import TrainingLoop

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / part) for part in ("gpu", "support")]

import pretend  # noqa: E402
import small_runs  # noqa: E402

STEPS = {TrainingLoop: "_step", FullBatchLoop: "step", MiniBatchLoop: "step"}


def main() -> None:
    record.parser_of(__doc__).parse_args()
    pretend.library()
    counts: list[tuple[int, int]] = []
    for loop, name in STEPS.items():
        setattr(loop, name, _counting(getattr(loop, name), counts))
    rows = []
    for task in small_runs.TRAINED:
        counts.clear()
        with tempfile.TemporaryDirectory() as folder:
            words = small_runs.words(task, Path(folder) / "outputs", "device=pretend")
            execute(compose_config(words))
        launches, waits = zip(*counts[1:])  # the first step also fills caches
        rows += [record.row(task, "launches per step", launches)]
        rows += [record.row(task, "host-device synchronisations per step", waits)]
    record.save(rows)


def _counting(step, counts: list[tuple[int, int]]):
    def counted(*args):
        pretend.counted()
        result = step(*args)
        counts.append(pretend.counted())
        return result

    return counted


if __name__ == "__main__":
    main()
