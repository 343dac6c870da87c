"""Processes: the group of ``torchrun``, and workers that end with the process that started them.

A command opens one process group and keeps it for all of its runs. Small values are exchanged by
gloo, so that no exchange waits for a GPU. torchrun ends all processes if one of them fails.
"""

import atexit
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from multiprocessing import active_children
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, TypeVar

from oversmoothing.errors import InputError, one_line_warnings

if TYPE_CHECKING:
    import torch

TIMEOUT = timedelta(hours=1)  # of one exchange; longer than an evaluation by one process
SECONDS = 0.5  # between two checks
IMPORTED = ["oversmoothing.lab.launch.command"]  # and torch
DIED = (
    "its process died, killed for lack of memory or by a crash in a library; run fewer jobs side "
    "by side, or free memory, and give the same command again"
)
Item, Found = TypeVar("Item"), TypeVar("Found")


def workers() -> BaseContext:
    """Returns what starts processes: on Linux as forks of a server that has imported torch.

    With a GPU and elsewhere each process imports torch and Hydra itself, which takes seconds: CUDA
    does not survive a fork, forks are unsafe on macOS, and Windows has none.
    """
    import torch

    if torch.cuda.is_available() or not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def follow_parent() -> None:
    """Ends this process soon after its parent, even if that was killed.

    A parent that exits normally ends its workers itself, but one that gets SIGKILL cannot. Its
    workers would keep running and hold memory, the GPU and possibly its lock. Those of a
    ``DataLoader`` end by themselves.
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


def in_processes(
    call: Callable[[Item], Found],
    items: Iterable[Item],
    jobs: int,
    died: Callable[[Item], Found],
) -> Iterator[tuple[Item, Found]]:
    """Calls a function with every item in parallel; yields items and results as they finish.

    A single job is done in this process. Else every item has its process, so that the death of one
    does not stop the others. The processes share the cores: torch gets an equal number of threads
    in each. Ctrl-C ends all processes.

    Args:
        call: runs in another process; its errors are raised here.
        items: arguments of the calls.
        jobs: number of processes at a time.
        died: returns the result for an item whose process died.
    """

    def one(item: Item) -> tuple[Item, Found]:
        try:
            with ProcessPoolExecutor(1, workers(), _begin, (jobs, {**os.environ})) as process:
                return item, process.submit(call, item).result()
        except (BrokenProcessPool, SystemExit):
            if stopped.is_set():
                raise
            return item, died(item)

    if jobs == 1:
        yield from ((item, call(item)) for item in items)
        return
    threads, stopped, others = _starters(jobs), threading.Event(), active_children()
    futures = [threads.submit(one, item) for item in items]
    try:
        for future in as_completed(futures):
            yield future.result()
    except (KeyboardInterrupt, GeneratorExit):  # only this process may have got the signal
        stopped.set()
        threads.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):
            for process in {*active_children()} - {*others}:
                process.terminate()
            time.sleep(SECONDS)
        raise
    finally:
        threads.shutdown(cancel_futures=True)


def _starters(jobs: int) -> ThreadPoolExecutor:
    """Returns threads whose processes do not get Ctrl-C; each would print a traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return ThreadPoolExecutor(jobs)
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # clears the mask of the thread that starts it
    mask = (signal.SIG_BLOCK, {signal.SIGINT})  # processes inherit it, and so does a fork server
    return ThreadPoolExecutor(jobs, "", signal.pthread_sigmask, mask)


def _begin(jobs: int, env: dict[str, str]) -> None:
    import torch

    os.environ.clear()  # a fork has that of its server
    os.environ.update(env)
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores() // jobs)))
    one_line_warnings()
    follow_parent()
    signal.signal(signal.SIGTERM, _leave)  # the last step, since errors in here print a traceback


def _leave(*_: object) -> None:
    """Exits once: a second signal would interrupt the end of workers that read data."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)  # without it Python warns of leaked semaphores


def local_rank() -> int:
    """Number of this process on its machine, which is also its GPU's."""
    return int(os.environ.get("LOCAL_RANK", 0))


def cores() -> int:
    """Number of cores for each process of this machine, at least 1."""
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return max(1, len(allowed) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


@contextlib.contextmanager
def group(device: "torch.device") -> Iterator[None]:
    """Context for one run of all processes, which opens the process group if there is none.

    Raises:
        InputError: the connection to another process broke, probably because it was killed.
    """
    from torch import distributed as dist

    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    _join(device)
    try:
        yield
        dist.barrier()
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo/transport" in str(error)):
            raise
        raise InputError(
            "another process of this command has ended; start the command again, and it continues "
            "from the last checkpoints"
        ) from error


def _join(device: "torch.device") -> None:
    """Joins the process group of the command, unless one is open."""
    import torch
    import torch.distributed.nn.functional  # noqa: F401  binds the default group at import
    from torch import distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=TIMEOUT)
        atexit.register(close)


def close() -> None:
    """Closes the process group and ends the threads of gloo.

    A thread that outlives the interpreter and then frees a tensor aborts the process. The threads
    end with the last reference to the group; models in DistributedDataParallel hold such
    references.
    """
    from torch import distributed as dist

    gc.collect()
    dist.destroy_process_group()


def end_if_one_of_several() -> None:
    """Ends this process after a failure if others wait for it; torchrun then ends them."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # without waiting for exchanges that will never end
