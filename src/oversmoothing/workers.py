"""Worker processes that end with the process that started them."""

import multiprocessing
import os
import threading
import time
from multiprocessing.process import BaseProcess

SECONDS = 0.5  # between two checks


def follow_parent(*_: object) -> None:
    """Ends this process soon after its parent, even if that was killed.

    A parent that exits normally ends its workers itself, but one that gets SIGKILL cannot. Its
    workers would keep running and hold memory, the GPU and possibly its lock.

    Args:
        _: ignored; initializers of workers get arguments such as their number.
    """
    started_by = multiprocessing.parent_process()
    threading.Thread(target=_end_after, args=(started_by,), daemon=True).start()


def _end_after(started_by: BaseProcess | None) -> None:
    parent = os.getppid()
    if started_by is None or started_by.pid == parent:
        while os.getppid() == parent:  # an orphan gets another parent
            time.sleep(SECONDS)
    else:  # the process of the operating system is a fork server, or the parent has ended already
        started_by.join()
    os._exit(1)
