"""Runs several processes with equal and overlapping sweeps, and kills some of them."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job, Trial
from torture_areas.processes import Started, train

SMALL = ["data.num_nodes=400", "trainer.epochs=100", "trainer.eval_every=10", "logger=none"]
DEPTHS, SEEDS = (1, 2, 3), ([0], [0, 1], [1, 2])
LINES = 10  # of the log, for each seed


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    return [partial(_sweeps, drawn.random(), folder) for _ in range(3 * number)]


def _sweeps(seed: float, folder: Path) -> Iterator[Trial]:
    drawn, outputs = random.Random(seed), folder / f"sweeps-{seed}"
    own = [*SMALL, "threads=1", "checkpoint_seconds=0", f"paths.outputs={outputs}"]
    commands = [["-m", *_axes(drawn), *own] for _ in range(4)]
    commands[1] = commands[0]
    started = [Started(command) for command in commands]
    stopped = drawn.sample(range(4), drawn.randint(1, 2))
    while not list(outputs.glob("*/metrics.jsonl")) and started[0].running():
        time.sleep(0.01)
    for i in stopped:
        time.sleep(drawn.uniform(0, 2))
        started[i].stop(signal.SIGKILL)
    name = f"sweeps of four processes, {len(stopped)} killed"
    ended = [one.ended() for one in started]
    ended = [train(commands[i]) if i in stopped else one for i, one in enumerate(ended)]
    faults = [one.fault or (one.code and one.err) for one in ended]
    yield name, next(filter(None, faults), "") or _lost(outputs, commands) or _doubled(outputs)


def _axes(drawn: random.Random) -> list[str]:
    depths = drawn.sample(DEPTHS, drawn.randint(2, 3))
    seeds = str(drawn.choice(SEEDS)).replace(" ", "")
    return [f"backbone.depth={','.join(map(str, depths))}", f"seeds={seeds}"]


def _lost(outputs: Path, commands: list[list[str]]) -> str:
    found = [json.loads(path.read_text("utf-8")) for path in outputs.glob("*/result.json")]
    have = {(r["config"]["backbone"]["depth"], int(seed)) for r in found for seed in r["seeds"]}
    for command in commands:
        depths, seeds = (word.partition("=")[2] for word in command[1:3])
        for depth in map(int, depths.split(",")):
            if missing := [seed for seed in json.loads(seeds) if (depth, seed) not in have]:
                return f"depth {depth} lacks seeds {missing}"
    return ""


def _doubled(outputs: Path) -> str:
    for path in outputs.glob("*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        counts = Counter((seed, line["epoch"]) for line in lines for seed in line["seeds"])
        per_seed = Counter(seed for seed, _ in counts)
        if set(counts.values()) != {1} or set(per_seed.values()) != {LINES}:
            return f"{path.parent.name}: lines were lost or doubled: {dict(per_seed)}"
    return ""
