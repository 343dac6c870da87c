"""Worker processes that end with the process that started them."""

import multiprocessing
import os
import threading
import time

SECONDS = 0.5  # between two checks


def follow_parent(*_: object) -> None:
    """Ends this process soon after its parent, even if that was killed.

    A parent that exits normally ends its workers itself, but one that gets SIGKILL cannot. Its
    workers would keep running and hold memory, the GPU and possibly its lock.

    Args:
        _: ignored; initializers of workers get arguments such as their number.
    """
    started_by = multiprocessing.parent_process()  # it may have ended already
    parent = started_by.pid if started_by else os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:  # an orphan gets another parent
        time.sleep(SECONDS)
    os._exit(1)
