"""Ends all processes of ``torchrun`` soon after one of them has failed.

An exchange waits for all processes, so the failure of one would block the others for ever. A
process that fails therefore sets a flag in a store that all processes share. In every process, a
thread polls this store. When it finds a flag, its process has ``GRACE`` seconds to fail by itself,
as all processes do when a file is missing. After that the thread ends the process.
"""

import os
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from oversmoothing.errors import complain

GRACE = 5.0  # seconds
PERIOD = 0.5


class Watch:
    """A context that is entered for one run after the other.

    Args:
        rank: number of this process.
        world: number of processes.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.run = rank, world, 0
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # a connection of its own: that of the process group may be busy with an exchange
        store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=60))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store = dist.PrefixStore(f"oversmoothing/{attempt}", store)
        self.left = threading.Event()
        self.lock = threading.Lock()  # only one thread decides how this process leaves a run

    def __enter__(self) -> None:
        self.run, self.left = self.run + 1, threading.Event()
        threading.Thread(target=self._look, args=(self.left,), daemon=True).start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.lock:
            self.left.set()
            if error is not None:
                self.store.set(self._key(self.rank), "failed")

    def end_unless_all_failed(self) -> None:
        """Ends this process, which has failed in its run, unless all others soon fail in it, too.

        Then they can go on with the next run together.
        """
        limit = time.monotonic() + GRACE + 4 * PERIOD
        while (said := self._said()).count("") and time.monotonic() < limit:
            time.sleep(PERIOD / 5)
        if set(said) != {"failed"}:
            _exit()

    def _look(self, left: threading.Event) -> None:
        """Ends this process if another one has failed and this one does not leave the run."""
        while not (failed := self._failed()):
            if left.wait(PERIOD):
                return
        if left.wait(GRACE):
            return
        with self.lock:
            if left.is_set():
                return
            self.store.set(self._key(self.rank), "ended")
            complain(
                f"process {failed[0]} has failed, so the others end, too; start the command again, "
                "and it continues from the last checkpoints"
            )
            time.sleep(PERIOD)  # for the others to read it: process 0 may keep the store
            _exit()

    def _failed(self) -> list[int]:
        return [rank for rank, word in enumerate(self._said()) if word == "failed"]

    def _said(self) -> list[str]:
        """What the processes have reported of this run: ``failed``, ``ended`` or nothing yet."""
        keys = [self._key(rank) for rank in range(self.world)]
        try:
            return [self.store.get(k).decode() if self.store.check([k]) else "" for k in keys]
        except dist.DistError:  # process 0 keeps the store, and is gone
            return ["failed"] + [""] * (self.world - 1)

    def _key(self, rank: int) -> str:
        return f"{self.run}/{rank}"


def _exit() -> None:
    """Exits without waiting for exchanges that will never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
