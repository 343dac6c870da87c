"""Work in processes side by side, of which one may die without harm to the others."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from oversmoothing.errors import one_line_warnings
from oversmoothing.workers import follow_parent

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
    """Yields every item and what a call with it returns, in the order in which they are done.

    Args:
        call: run in another process; what it raises is raised here.
        jobs: number of processes.
        died: takes the place of a call whose process died.
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
    """One process: the death of one in a larger pool ends what all of them do."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=_set_up)


def _set_up() -> None:
    """Prepares a process."""
    one_line_warnings()
    follow_parent()
