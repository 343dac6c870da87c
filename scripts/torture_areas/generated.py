"""Runs generated commands: keys of the real configs with valid and invalid values of all kinds.

Hypothesis draws the commands. Most are run one after another in one process, which is faster; some
are run as separate commands.
"""

import contextlib
import io
import json
import random
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torture_areas import Job, Trial
from torture_areas.commands import OF_TASK, words
from torture_areas.processes import Started, streamed

SECONDS = 20.0  # time limit for a command to be refused or to start training
MEMORY = 16 * 2**30
IN_ONE_PROCESS, OF_THEIR_OWN = 120, 4
ODD = r"""
null true Off none -1 0 1e30 -0.0 nan inf -inf 1e400 0x10 1_000 1.5.2 2024-01-01 abc é😀 '1'
[] {} [0] [[]] [null] [1,2,3] {a:1} ${seeds} ${x} ${oc.env:HOME} ???
1,2 range(3) choice(1,2) interval(0,1) glob(*) ../x / /dev/null ~ [ ' \ = a=b @ %d
builtins.dict os.system oversmoothing
""".split()  # noqa: SIM905
ODD += ["", "\t", '"a b"', "{a: 1}", "9" * 30, "x" * 300]


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    commands = draw(drawn.randrange(2**32), number * (IN_ONE_PROCESS + OF_THEIR_OWN), folder)
    alone, together = commands[: number * OF_THEIR_OWN], commands[number * OF_THEIR_OWN :]
    size = (len(together) + 3) // 4
    chunks = [together[i : i + size] for i in range(0, len(together), size)]
    return [partial(_in_one_process, chunk) for chunk in chunks] + [
        partial(_of_its_own, command) for command in alone
    ]


def draw(seed: int, number: int, folder: Path) -> list[list[str]]:
    """Draws different commands; equal seeds give equal commands."""
    import hypothesis

    found: dict[tuple[str, ...], None] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=3 * number,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(_commands(folder))
    def collect(one: tuple[str, ...]) -> None:
        found[one] = None

    collect()
    drawn = random.Random(seed).sample(list(found), min(number, len(found)))
    return [list(one) for one in drawn]


def _commands(folder: Path) -> Any:
    """Returns a strategy for commands of all tasks with one or two overrides."""
    from hypothesis import strategies as st

    known = {task: _settings(words(task, folder / "outputs")) for task in OF_TASK}
    values = _values()

    @st.composite
    def override(choose: st.DrawFn, task: str) -> str:
        key, value = choose(st.sampled_from(known[task]))
        kind = choose(st.sampled_from(["near"] * 8 + ["odd", "key"]))
        if kind == "key":
            return f"{choose(st.sampled_from([key[:-1], key + '.x', *ODD]))}={value}"
        if isinstance(value, list) and value and isinstance(value[0], str):
            near = st.sampled_from(value)
        else:
            near = values.get(type(value), values[str])
        return f"{key}={choose(near if kind == 'near' else values[str])}"

    @st.composite
    def command(choose: st.DrawFn) -> tuple[str, ...]:
        task = choose(st.sampled_from(["nodes"] * 5 + list(OF_TASK)))
        own = choose(st.lists(override(task), min_size=1, max_size=2, unique=True))
        return (*words(task, folder / "outputs"), *own)

    return command()


def _values() -> dict[type, Any]:
    """Returns strategies for values by type: numbers and lists near given ones, and others."""
    from hypothesis import strategies as st

    whole = st.one_of(st.integers(-2, 4), st.sampled_from([7, 33, 1000, 10**6, 10**9, 10**20]))
    real = st.one_of(st.floats(-2, 2), st.floats(), st.sampled_from([0, 1, -1, 0.5, 1e-3, 1e30]))
    numbers = st.one_of(st.lists(whole, max_size=3), st.lists(real, max_size=3))
    characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    lists = numbers.map(lambda items: str(items).replace(" ", ""))
    odd = st.one_of(st.sampled_from(ODD), st.text(characters, max_size=8), whole.map(str), lists)
    number = st.one_of(whole, whole, real).map(str)
    count = st.one_of(*[whole] * 9, real).map(str)
    switch = st.sampled_from(["true", "false", "null", "1"])
    return {int: count, float: number, bool: switch, list: lists, str: odd}


def _settings(command: list[str]) -> list[tuple[str, Any]]:
    """Lists what a command can set: keys of its config with values, and groups with options."""
    from omegaconf import OmegaConf

    from oversmoothing.lab.config.compose import choices, compose_config
    from oversmoothing.lab.config.folders import CONFIGS, options
    from oversmoothing.lab.config.names import flat

    keys = flat(OmegaConf.to_container(compose_config(command), resolve=False))
    places = [place for place in choices() if not place.startswith("hydra/")]
    groups = {place: options(place.split("@")[0], [CONFIGS]) for place in places}
    skipped = ("paths.", "task._", "data._", "backbone._", "trainer._", "aggregator._", "then._")
    own = {key: value for key, value in keys.items() if not key.startswith(skipped)}
    return sorted((own | groups).items(), key=lambda item: item[0])


def shown(command: list[str]) -> str:
    """Returns the drawn part of a command."""
    [task, *_] = [own for own in OF_TASK if command[: len(OF_TASK[own])] == OF_TASK[own]]
    end = next(i for i, word in enumerate(command) if word.startswith("paths.cache="))
    drawn = [word for word in command[end + 1 :] if not word.startswith("paths.data=")]
    return f"{task}: {drawn}"


def _in_one_process(commands: list[list[str]]) -> Iterator[Trial]:
    """Runs commands in one process; starts another one if a command ends the process."""
    while commands:
        done = 0
        for trial in streamed("generated", commands, SECONDS):
            done += 1
            yield trial
        if done >= len(commands):
            return
        commands = commands[done:]


def _of_its_own(command: list[str]) -> Iterator[Trial]:
    started = Started(command)
    ended = started.ended(6 * SECONDS)  # a command that trains may take longer
    yield f"alone, {shown(command)}", ended.fault


class Trains(BaseException):
    """Raised when a command has been accepted and starts to log."""


class TooLong(BaseException):
    """Raised when a command exceeds its time limit."""


def run(command: list[str]) -> str:
    """Runs a command in this process until it ends or trains; returns its failure or nothing."""
    from oversmoothing.lab import train

    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["train.py", *command]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = train.main()
        except Trains:
            return ""
        except TooLong:
            return f"no answer within {SECONDS} s"
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            return f"traceback: {type(error).__name__}: {error}"[:300]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    if "Traceback" in err.getvalue() + out.getvalue():
        return f"traceback: {err.getvalue().strip().splitlines()[-2:]}"[:400]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    return "" if not code or "error: " in err.getvalue() else f"code {code} without an error"


def _answer(commands: list[list[str]]) -> None:
    """Runs commands, and reports to the other process before and after each."""
    from oversmoothing.lab.store.recorder import Recorder

    log, out = Recorder.log, sys.stdout

    def second(recorder: Recorder, **metrics: object) -> None:
        log(recorder, **metrics)
        if recorder.folder.joinpath("metrics.jsonl").read_bytes().count(b"\n") > 1:
            raise Trains

    def too_long(*_: object) -> None:
        raise TooLong

    Recorder.log = second
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, too_long)
    for command in commands:
        print(json.dumps([shown(command)]), file=out, flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # CPU seconds, since the machine may be busy
        failure = run(command)
        print(json.dumps([shown(command), failure]), file=out, flush=True)


if __name__ == "__main__":
    _answer(json.load(sys.stdin))
