"""Dense CRF of many images, in parallel processes.

The processes import this module and ``crf.py``, so neither may import torch.
"""

import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context

import numpy as np
from tqdm import tqdm

from oversmoothing.errors import InputError
from oversmoothing.lab.processes import follow_parent, shorten_sockets
from oversmoothing.lab.tasks.wsss.crf import CRF, dense_crf, load_pydensecrf

Job = tuple[str, np.ndarray, np.ndarray]  # name, image (H, W, 3), probabilities (C, H, W)


def crf_labels(
    jobs: Iterable[Job],
    crf: CRF,
    processes: int | None = 0,
    desc: str = "dense CRF",
    total: int | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and the most probable labels after the CRF, uint8 (H, W), in the jobs' order.

    Args:
        jobs: name, image and probabilities, see :func:`dense_crf`; they are read on demand, so that
            at most two per process are in memory.
        crf: settings.
        processes: number of worker processes; 0: work in this process; None: one for each core.
        desc: text of the progress bar, which is shown only on a terminal.
        total: number of jobs, for the estimate of the remaining time.

    Raises:
        InputError: see :func:`dense_crf`; the message names the image.
        RuntimeError: any other failure; the message names the image.
    """
    load_pydensecrf()
    if processes is None:
        from oversmoothing.lab.processes import cores

        processes = cores()
    labels = _in_parallel(jobs, crf, processes) if processes else (_label(j, crf) for j in jobs)
    yield from tqdm(labels, desc, total, leave=False, disable=None, dynamic_ncols=True)


def _label(job: Job, crf: CRF) -> tuple[str, np.ndarray]:
    name, image, probabilities = job
    try:
        return name, dense_crf(image, probabilities, crf).argmax(axis=0).astype(np.uint8)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except Exception as error:
        raise RuntimeError(f"{name}: dense CRF failed: {error!r}") from error


def _in_parallel(jobs: Iterable[Job], crf: CRF, processes: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields results in order; uses a fork server, since forking a process with torch can hang.

    On Windows, which has no fork server, processes are spawned.
    """
    shorten_sockets()
    how = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    pool = ProcessPoolExecutor(processes, get_context(how), initializer=_follow_parent)
    waiting: deque[Future] = deque()
    try:
        for job in jobs:
            name = job[0]
            waiting.append(pool.submit(_label, job, crf))
            if len(waiting) == 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            f"{name} or one of the {2 * processes} images before it: a dense CRF process died, "
            "perhaps for lack of memory; use fewer processes, task.evaluation.workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """Ignores Ctrl-C, and exits when the parent process exits or is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow_parent()
