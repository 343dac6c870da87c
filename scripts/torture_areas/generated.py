"""Generated commands: keys of the real configs with values of all kinds, right and wrong.

Hypothesis draws the commands. Most are run one after the other in one process, which is quicker;
some as commands of their own.
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

from torture_areas import Job, Trial
from torture_areas.commands import OF_TASK, words
from torture_areas.processes import Started, streamed

SECONDS = 20.0  # within which a command has to be refused or has to train
MEMORY = 16 * 2**30
IN_ONE_PROCESS, OF_THEIR_OWN = 300, 6
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
    """Draws commands; the same ones for the same seed."""
    import hypothesis
    from hypothesis import strategies as st

    known = {task: _keys(words(task, folder / "outputs")) for task in OF_TASK}
    number_like = st.one_of(st.integers(), st.integers(-3, 3), st.floats(), st.floats(-2, 2))
    value = st.one_of(
        st.sampled_from(ODD),
        number_like.map(str),
        st.lists(number_like, max_size=3).map(lambda items: str(items).replace(" ", "")),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    )

    @st.composite
    def command(choose: st.DrawFn) -> list[str]:
        task = choose(st.sampled_from(["nodes"] * 5 + list(OF_TASK)))
        keys = st.sampled_from(known[task])
        wrong = st.one_of(keys, keys, keys, keys.map(lambda key: key[:-1]), st.sampled_from(ODD))
        own = [f"{choose(wrong)}={choose(value)}" for _ in range(choose(st.integers(1, 2)))]
        return [*words(task, folder / "outputs"), *own]

    found: list[list[str]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(command())
    def collect(one: list[str]) -> None:
        found.append(one)

    collect()
    return found[:number]


def _keys(command: list[str]) -> list[str]:
    """What a command can set: keys of its config, and groups."""
    from omegaconf import OmegaConf

    from oversmoothing.config.compose import choices, compose_config
    from oversmoothing.config.names import flat

    keys = flat(OmegaConf.to_container(compose_config(command), resolve=False))
    return sorted(key for key in keys if not key.startswith("paths.")) + sorted(choices())


def shown(command: list[str]) -> str:
    """The part of a command that was drawn."""
    [task, *_] = [own for own in OF_TASK if command[: len(OF_TASK[own])] == OF_TASK[own]]
    end = next(i for i, word in enumerate(command) if word.startswith("paths.cache="))
    drawn = [word for word in command[end + 1 :] if not word.startswith("paths.data=")]
    return f"{task}: {drawn}"


def _in_one_process(commands: list[list[str]]) -> Iterator[Trial]:
    """Continues in another process behind a command that ends the process."""
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
    """A command has been accepted and has begun to log."""


class TooLong(BaseException):
    """No answer in time."""


def run(command: list[str]) -> str:
    """Runs a command in this process until it ends or trains; says what is wrong with its end."""
    from oversmoothing import train

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
    """Runs commands, and tells the other process before and after each."""
    from oversmoothing.store.recorder import Recorder

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
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: the machine may be busy
        failure = run(command)
        print(json.dumps([shown(command), failure]), file=out, flush=True)


if __name__ == "__main__":
    _answer(json.load(sys.stdin))
