"""Worker processes that end with the process that started them, and the folder of their sockets."""

import multiprocessing
import os
import tempfile
import threading
import time
from multiprocessing import util
from multiprocessing.process import BaseProcess

from oversmoothing.errors import InputError

SECONDS = 0.5  # between two checks
LONGEST = 60  # bytes of TMPDIR; the path of a socket in it is 32 longer, and 103 are the most
SHORT = "/tmp"


def shorten_sockets() -> None:
    """Puts the sockets of worker processes into ``SHORT`` if they would not fit below TMPDIR.

    A worker that cannot open its socket sends nothing, and the main process waits forever.

    Raises:
        InputError: ``SHORT`` is not writable.
    """
    before = tempfile.gettempdir()
    if os.name == "nt" or len(os.fsencode(before)) <= LONGEST:
        return
    try:
        tempfile.tempdir = SHORT
        util.get_temp_dir()  # chosen once; forked and spawned workers inherit it
    except OSError as error:
        raise InputError(
            f"TMPDIR: expected at most {LONGEST} characters for the sockets of worker processes, "
            f"got {before}, and {SHORT} is not writable; export a shorter TMPDIR, or use no workers"
        ) from error
    finally:
        tempfile.tempdir = before


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
