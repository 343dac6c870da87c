"""Trains batches of networks side by side, each on CPU threads of its own.

This helps methods whose operations hardly gain from several threads, such as ContraNorm on a graph.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event

import torch

from oversmoothing.lab.search.batch import Batch


class Stopped(Exception):
    """Another batch raised an error, or the search was interrupted."""


def workers(device: torch.device, batches: int) -> int:
    """Returns how many batches are trained at a time: one on each thread of a CPU, else one."""
    return max(1, min(torch.get_num_threads(), batches)) if device.type == "cpu" else 1


def train(batches: Sequence[Batch], until: int, tick: Callable[[], None]) -> None:
    """Trains batches up to an epoch.

    Args:
        batches: on one device.
        until: number of the epoch.
        tick: called after every epoch of a batch, in its thread.
    """
    batches = [batch for batch in batches if batch.steps(until)]
    batches.sort(key=lambda batch: -batch.steps(until))  # the longest first: threads end together
    number = workers(batches[0].work.device, len(batches)) if batches else 1
    if number == 1:
        for batch in batches:
            batch.train(until, tick)
        return
    stop = Event()

    def tick_or_stop() -> None:
        tick()
        if stop.is_set():
            raise Stopped

    with threads(torch.get_num_threads() // number), ThreadPoolExecutor(number) as pool:
        try:
            every = [pool.submit(batch.train, until, tick_or_stop) for batch in batches]
            for future in wait(every, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            stop.set()  # does nothing if all are done
            pool.shutdown(cancel_futures=True)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Sets torch's number of CPU threads inside the context, also for new Python threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
