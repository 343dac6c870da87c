"""Dense CRF after segmentation (Krähenbühl, Koltun 2011), computed by pydensecrf.

.. math:: Q ← softmax(log p + w_1 K̃_1 Q + w_2 K̃_2 Q)

starts from Q = p. K̃ = D^{-½} K D^{-½} with K(i, j) = exp(−½|f_i − f_j|²), i = j included, and D
the row sums of K. The features f of K₁ are position/pos_xy, those of K₂ are position/bi_xy and
colour/bi_rgb. pydensecrf filters on a permutohedral lattice, which is approximate.

Its processes import this module, so it must not import torch.
"""

import importlib
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from types import ModuleType

import numpy as np
from tqdm import tqdm

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError, install
from oversmoothing.lab.processes import follow_parent, shorten_sockets

FLOOR = 1e-5  # lowest probability, as in pydensecrf


@dataclass(frozen=True)
class CRF:
    """Settings of the dense CRF, by default ToCo's.

    Args:
        iterations: number of mean-field iterations.
        pos_w: weight of the kernel on position.
        pos_xy: σ of this kernel in pixels.
        bi_w: weight of the kernel on position and colour.
        bi_xy: σ of this kernel's position in pixels.
        bi_rgb: σ of this kernel's colour on the 0–255 scale.

    Raises:
        InputError: a value out of range.
    """

    iterations: int = 10
    pos_w: float = 1.0
    pos_xy: float = 1.0
    bi_w: float = 4.0
    bi_xy: float = 121.0
    bi_rgb: float = 5.0

    def __post_init__(self) -> None:
        positive = {key: getattr(self, key) for key in ("iterations", "pos_xy", "bi_xy", "bi_rgb")}
        require(
            "task.evaluation.crf",
            **{key: (value, value > 0, "a value above 0") for key, value in positive.items()},
            **at_least(0, pos_w=self.pos_w, bi_w=self.bi_w),
        )


def load_pydensecrf() -> ModuleType:
    """Imports the optional package pydensecrf; call it first, to fail early.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return importlib.import_module("pydensecrf.densecrf")
    except ImportError as error:
        raise InputError(
            f"dense CRF: pydensecrf cannot be imported ({error}); {install('crf')}, "
            "or turn it off with task.evaluation.crf=null"
        ) from error


def dense_crf(image: np.ndarray, probabilities: np.ndarray, crf: CRF = CRF()) -> np.ndarray:
    """Returns the probabilities after mean-field inference.

    Args:
        image: uint8 (H, W, 3) RGB.
        probabilities: (C, H, W) in [0, 1], summing to 1 over C.

    Shapes: -> float32 (C, H, W).

    Raises:
        InputError: pydensecrf is missing, or arrays have a wrong type, shape or range.
    """
    C, H, W = _checked(image, probabilities).shape
    field = load_pydensecrf().DenseCRF2D(W, H, C)
    p = np.clip(probabilities.reshape(C, -1), FLOOR, 1).astype(np.float32, order="C")
    field.setUnaryEnergy(-np.log(p))
    field.addPairwiseGaussian(sxy=crf.pos_xy, compat=crf.pos_w)
    colours = np.require(image, requirements=("C", "W"))  # pydensecrf refuses read-only arrays
    field.addPairwiseBilateral(sxy=crf.bi_xy, srgb=crf.bi_rgb, rgbim=colours, compat=crf.bi_w)
    return np.asarray(field.inference(crf.iterations), np.float32).reshape(C, H, W)


def _checked(image: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    wanted = (*probabilities.shape[1:], 3)
    if probabilities.ndim != 3 or image.shape != wanted or image.dtype != np.uint8:
        raise InputError(
            "dense CRF: expected an image uint8 (H, W, 3) and probabilities (C, H, W), got "
            f"{image.dtype} {image.shape} and {probabilities.shape}"
        )
    if not (probabilities.min() >= 0 and probabilities.max() <= 1 + 1e-3):  # False for NaN too
        raise InputError("dense CRF: probabilities are not in [0, 1]; take the softmax of logits")
    return probabilities


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
