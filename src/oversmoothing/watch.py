"""Ends all processes of ``torchrun`` soon after one of them has failed.

An exchange waits for all processes, so the failure of one would block the others forever. A process
that fails therefore sets a flag in a store that all processes share. In every process, a thread
polls this store. When it finds a flag, its process has ``GRACE`` seconds to fail by itself, as all
processes do when a file is missing. After that the thread ends the process.
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
    """A context that watches a run; it is entered anew for every run.

    Args:
        rank: number of this process.
        world: number of processes.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.run = rank, world, 0
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # A second connection, since that of the process group may be busy with an exchange.
        store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=60))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store = dist.PrefixStore(f"oversmoothing/{attempt}", store)
        self.left = threading.Event()
        self.lock = threading.Lock()  # only one thread may decide how this process leaves a run

    def __enter__(self) -> None:
        self.run, self.left = self.run + 1, threading.Event()
        threading.Thread(target=self._look, args=(self.left,), daemon=True).start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.lock:
            self.left.set()
            if error is not None:
                self.store.set(self._key(self.rank), "failed")

    def end_unless_all_failed(self) -> None:
        """Ends this process after its run failed, unless the run soon fails in all other processes.

        If it fails in all processes, they continue together with the next run.
        """
        limit = time.monotonic() + GRACE + 4 * PERIOD
        while (said := self._said()).count("") and time.monotonic() < limit:
            time.sleep(PERIOD / 5)
        if set(said) != {"failed"}:
            _exit()

    def _look(self, left: threading.Event) -> None:
        """Ends this process if another one fails and this one does not leave the run in time."""
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
                f"process {failed[0]} has failed, so the others end as well; start the command "
                "again, and it continues from the last checkpoints"
            )
            time.sleep(PERIOD)  # lets the others read it, since process 0 may hold the store
            _exit()

    def _failed(self) -> list[int]:
        return [rank for rank, word in enumerate(self._said()) if word == "failed"]

    def _said(self) -> list[str]:
        """Returns the report of each process on this run: ``failed``, ``ended`` or empty."""
        keys = [self._key(rank) for rank in range(self.world)]
        try:
            return [self.store.get(k).decode() if self.store.check([k]) else "" for k in keys]
        except dist.DistError:  # process 0, which holds the store, has ended
            return ["failed"] + [""] * (self.world - 1)

    def _key(self, rank: int) -> str:
        return f"{self.run}/{rank}"


def _exit() -> None:
    """Exits without waiting for exchanges that will never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
