"""Runs commands in separate processes, and tracks the processes that they start."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torture_areas import Trial

ROOT = Path(__file__).parents[2]
ORPHAN_SECONDS = 5.0
LIMIT_SECONDS = 300.0
LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass
class Ended:
    """How a command ended; ``code`` is None if it had to be killed after the limit."""

    code: int | None
    out: str
    err: str

    @property
    def fault(self) -> str:
        """The failure if the command neither succeeded nor printed an error; else empty."""
        if self.code is None:
            return f"no end within {LIMIT_SECONDS:.0f} s"
        if "Traceback" in self.err + self.out:
            return f"traceback: {self.err.strip().splitlines()[-1][:300]}"
        if self.code not in (0, 1, 2):
            return f"exit code {self.code}"
        if self.code and "error: " not in self.err:
            return f"exit code {self.code} without an error: {self.err[-300:]}"
        return ""


class Started:
    """A running train.py.

    Args:
        words: its arguments.
        env: added to the environment.
        file_size: bytes above which no file can grow, as on a full disk.
        launcher: words for Python before train.py, such as those of torchrun.
    """

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str] | None = None,
        file_size: int = 0,
        launcher: Sequence[str] = (),
    ) -> None:
        self.mark = uuid.uuid4().hex
        command = [sys.executable, *launcher, "train.py", *words]
        if file_size:
            command = [sys.executable, "-c", LIMITED, str(file_size), *command]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), "TORTURE_MARK": self.mark, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # for Ctrl-C, which is sent to the whole group
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self, number: signal.Signals) -> None:
        """Sends a signal as users do: Ctrl-C to the whole group, other signals to one process."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGINT:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def ended(self, limit: float = LIMIT_SECONDS) -> Ended:
        """Waits for the end of the command; kills it after the limit."""
        try:
            out, err = self.process.communicate(timeout=limit)
            return Ended(self.process.returncode, out, err)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.orphans(0)
            return Ended(None, *self.process.communicate())

    def children(self) -> dict[str, int]:
        """Maps ``RANK`` in the environment to the id of the process started by the command."""
        found = {}
        for number in _marked(self.mark):
            with contextlib.suppress(OSError):
                own = Path(f"/proc/{number}")
                parent = (own / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
                lines = (own / "environ").read_text("utf-8").split("\0")
                ranks = [line[5:] for line in lines if line.startswith("RANK=")]
                if int(parent) == self.process.pid and ranks:
                    found[ranks[0]] = number
        return found

    def orphans(self, seconds: float = ORPHAN_SECONDS) -> list[str]:
        """Lists and kills processes that the command started and that outlive it."""
        limit = time.monotonic() + seconds
        while (left := _marked(self.mark)) and time.monotonic() < limit:
            time.sleep(0.1)
        names = []
        for number in left:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{number}/cmdline").read_text("utf-8").split("\0")
                names.append(" ".join(words)[:80])
                os.kill(number, signal.SIGKILL)
        return names


def environment() -> dict[str, str]:
    """Returns the environment without the settings of W&B and torchrun."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    path = [str(ROOT / "src"), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
    more = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))}
    return ours | more | {"PYTHONDONTWRITEBYTECODE": "1"}


def train(words: Sequence[str], env: Mapping[str, str] | None = None) -> Ended:
    """Runs train.py to its end."""
    return Started(words, env).ended()


def _marked(mark: str) -> list[int]:
    found, own = [], f"TORTURE_MARK={mark}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if own in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def streamed(module: str, given: object, limit: float) -> Iterator[Trial]:
    """Yields the trials that a process runs one after another.

    Args:
        module: of this folder, run as a script; it reads ``given`` as JSON and prints two JSON
            lists for each trial: its name before it, and its name and failure after it.
        limit: seconds for each trial.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", f"torture_areas.{module}"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(json.dumps(given))
    process.stdin.close()
    begun = f"start of {module}"
    for line in process.stdout:
        name, *failure = json.loads(line)
        if failure:
            yield name, failure[0]
        begun = "" if failure else name
    process.wait()
    if process.returncode or begun:
        said = process.stderr.read().strip().splitlines()[-1:]
        yield begun or "end", f"the process died with code {process.returncode}: {said}"
