"""Runs work in parallel processes; if one process dies, the others continue."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from oversmoothing.errors import one_line_warnings
from oversmoothing.lab.processes import follow_parent

DIED = (
    "its process died, killed for lack of memory or by a crash in a library; run fewer jobs side "
    "by side, or free memory, and give the same command again"
)
Item, Found = TypeVar("Item"), TypeVar("Found")


def in_processes(
    call: Callable[[Item], Found],
    items: Iterable[Item],
    jobs: int,
    died: Callable[[Item], Found],
) -> Iterator[tuple[Item, Found]]:
    """Calls a function with every item in parallel; yields items and results as they finish.

    Args:
        call: runs in another process; its errors are raised here.
        items: arguments of the calls.
        jobs: number of processes.
        died: returns the result for an item whose process died.
    """
    waiting, running = deque(items), dict[Future[Found], tuple[Item, ProcessPoolExecutor]]()
    idle = [_pool() for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or running:
            while waiting and idle:
                item, pool = waiting.popleft(), idle.pop()
                running[pool.submit(call, item)] = item, pool
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                item, pool = running.pop(future)
                broken = isinstance(future.exception(), BrokenProcessPool)
                idle.append(_pool() if broken else pool)
                yield item, died(item) if broken else future.result()
    finally:
        for pool in [*idle, *(pool for _, pool in running.values())]:
            pool.shutdown(cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    """Creates a pool of one process, since the death of one process breaks the whole pool."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=_set_up)


def _set_up() -> None:
    """Prepares a worker process."""
    one_line_warnings()
    follow_parent()
