"""Simulates power loss in a run folder, in one process: truncated files, zeros, partial files."""

import json
import platform
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job
from torture_areas.compare import difference
from torture_areas.processes import streamed

WORDS = [
    *("data.num_nodes=400", "trainer.epochs=30", "trainer.eval_every=2", "seeds=[0,1]"),
    *("logger=none", "threads=1", "device=cpu", "checkpoint_seconds=0", "aggregator=centered"),
]
TRIALS = 40


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    given = [{"seed": drawn.random(), "folder": str(folder / f"power-{i}")} for i in range(number)]
    return [partial(streamed, "power_loss", one, 60.0) for one in given]


def shortened(path: Path, drawn: random.Random) -> None:
    """Truncates a file."""
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: drawn.randrange(size + 1)])


def zeroed(path: Path, drawn: random.Random) -> None:
    """Replaces the end of a file by zeros: its size was on the disk, its content was not."""
    content = path.read_bytes()
    kept = drawn.randrange(len(content) + 1)
    path.write_bytes(content[:kept] + bytes(len(content) - kept))


def lost(path: Path, drawn: random.Random) -> None:
    """Deletes a file."""
    path.unlink()


def half_written(path: Path, drawn: random.Random) -> None:
    """Leaves a temporary file."""
    left = path.with_name(f".{path.name}.{platform.node()}.4194304")
    left.write_bytes(path.read_bytes()[:100])


HARMS: tuple[Callable[[Path, random.Random], None], ...] = (shortened, zeroed, lost, half_written)


class Stop(Exception):
    """Raised at the simulated power loss."""


def trials(seed: float, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yields the names of trials and the functions that run them."""
    from oversmoothing.lab.config.compose import compose_config
    from oversmoothing.lab.launch.execute import execute, run_folder

    drawn, first = random.Random(seed), compose_config([*WORDS, f"paths.outputs={folder}/whole"])
    execute(first)
    for i in range(TRIALS):
        outputs = folder / str(i)
        asked = compose_config([*WORDS, f"paths.outputs={outputs}"])
        _stopped_at(drawn.randint(1, 29), partial(execute, asked))
        files = [p for p in run_folder(asked).iterdir() if p.suffix in (".pt", ".jsonl", ".yaml")]
        chosen = drawn.sample(sorted(files), drawn.randint(1, min(3, len(files))))
        harms = [(drawn.choice(HARMS), path) for path in chosen]
        name = "; ".join(f"{path.name} {harm.__name__}" for harm, path in harms)
        for harm, path in harms:
            harm(path, drawn)

        def again(asked: object = asked) -> str:
            execute(asked)
            corrupt = list(run_folder(asked).glob("*.corrupt"))
            for path in corrupt:  # set aside with a warning, as documented
                path.unlink()
            return difference(run_folder(first), run_folder(asked))

        yield name, again
        shutil.rmtree(outputs)


def _stopped_at(number: int, run: Callable[[], object]) -> None:
    """Runs until ``number`` checkpoints have been saved, then stops like a power loss."""
    from oversmoothing.lab.store import checkpoints

    real, left = checkpoints.save, [number]

    def save(*given: object) -> None:
        real(*given)
        left[0] -= 1
        if not left[0]:
            raise Stop

    checkpoints.save = save
    try:
        run()
    except Stop:
        pass
    finally:
        checkpoints.save = real


def tried(trial: Callable[[], str]) -> str:
    """Runs a trial; returns its failure, empty if it passed."""
    try:
        return trial()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    for name, trial in trials(given["seed"], Path(given["folder"])):
        print(json.dumps([name]), flush=True)
        print(json.dumps([name, tried(trial)]), flush=True)
