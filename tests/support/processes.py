"""Processes of their own: forks of a server that has imported torch, which a new one does anew."""

import contextlib
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oversmoothing.lab import processes

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "src/oversmoothing/__main__.py"
OFTEN = ["pytest", "torch._dynamo", "torch_geometric.nn", "oversmoothing.lab.tasks.nodes_minibatch"]
processes.IMPORTED += OFTEN  # what many tests import, by optimizers or themselves
Ended = tuple[int | None, str, str]  # exit code, stdout, stderr


class Fork:
    """A process that calls a function, with its output in files.

    Args:
        env: added to the environment.
    """

    def __init__(self, call: Callable[..., object], *args: object, **env: str) -> None:
        self.said = tempfile.TemporaryDirectory()
        for name in ("out", "err"):
            Path(self.said.name, name).touch()
        own = {**os.environ, **env}
        self.process = processes.workers().Process(
            target=_call, args=(self.said.name, own, call, args)
        )
        self.process.start()

    def running(self) -> bool:
        return self.process.is_alive()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(self.process.pid, number)

    def end(self, seconds: float = 120) -> Ended:
        """Waits for its end; it is killed after that time."""
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        texts = (Path(self.said.name, name) for name in ("out", "err"))
        code, out, err = self.process.exitcode, *(p.read_text("utf-8") for p in texts)
        return code, out, err


def _call(said: str, env: dict[str, str], call: Callable[..., object], args: tuple) -> None:
    os.environ.clear()
    os.environ.update(env)
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(Path(said, name), os.O_WRONLY), number)
    sys.stdout, sys.stderr = (open(n, "w", 1, "utf-8", closefd=False) for n in (1, 2))  # noqa: SIM115
    call(*args)


def nothing() -> None:
    """Changes nothing."""


def command(
    words: list[str], folder: Path = ROOT, before: Callable[[], object] = nothing, **env: str
) -> Fork:
    """Starts a command in a process of its own; see ``perform``."""
    return Fork(perform, words, folder, before, **env)


def perform(words: list[str], folder: Path = ROOT, before: Callable[[], object] = nothing) -> None:
    """Makes this process ``oversmoothing …`` or a script of the repository.

    Args:
        folder: where it is run.
        before: called first.
    """
    os.chdir(folder)
    path = MAIN if words[0] == "oversmoothing" else ROOT / words[0]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = filter(None, [str(path.parent), *paths])
    sys.argv = [*words]
    before()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as a fork of a server of jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    runpy.run_path(str(path), run_name="__main__")


def by_two(call: Callable[..., object], *args: object) -> list[Ended]:
    """Calls a function in two processes with the environment of torchrun."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    both = [Fork(call, *args, **shared, RANK=rank, LOCAL_RANK=rank) for rank in "01"]
    return [process.end() for process in both]


def without_error(ended: list[Ended]) -> None:
    """Both processes have ended well."""
    assert [code for code, *_ in ended] == [0, 0], "".join(err for *_, err in ended)


def with_mark(mark: str) -> set[int]:
    """Living processes whose environment has MARK=<mark>, as those that such a process starts."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            if f"MARK={mark}\0".encode() in (path / "environ").read_bytes():
                found.add(int(path.name))
    return found


def all_ended(mark: str, seconds: float = 20) -> bool:
    """Whether all processes with a mark end by themselves; those that do not are killed."""
    limit = time.monotonic() + seconds
    while with_mark(mark) and time.monotonic() < limit:
        time.sleep(0.1)
    left = with_mark(mark)
    for number in left:
        os.kill(number, signal.SIGKILL)
    return not left
