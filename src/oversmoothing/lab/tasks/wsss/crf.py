"""Dense CRF after segmentation (Krähenbühl, Koltun 2011), computed by pydensecrf.

.. math:: Q ← softmax(log p + w_1 K̃_1 Q + w_2 K̃_2 Q)

starts from Q = p. K̃ = D^{-½} K D^{-½} with K(i, j) = exp(−½|f_i − f_j|²), i = j included, and D
the row sums of K. The features f of K₁ are position/pos_xy, those of K₂ are position/bi_xy and
colour/bi_rgb. pydensecrf filters on a permutohedral lattice, which is approximate.

The processes of ``crf_parallel.py`` import this module, so it must not import torch.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError, install

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
