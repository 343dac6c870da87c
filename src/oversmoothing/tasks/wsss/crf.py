"""Dense CRF after segmentation (Krähenbühl, Koltun 2011), by pydensecrf.

.. math:: Q ← softmax(log p + w_1 K̃_1 Q + w_2 K̃_2 Q)

from Q = p; K̃ = D^{-½} K D^{-½}, K(i, j) = exp(−½|f_i − f_j|²), self included, D its row sums.
Features f: K₁ position/pos_xy, K₂ (position/bi_xy, colour/bi_rgb). pydensecrf filters on a
permutohedral lattice, which is approximate.

The processes of ``crf_parallel.py`` import this module: nothing here may need torch.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from oversmoothing.errors import InputError

FLOOR = 1e-5  # least probability (pydensecrf's own)


@dataclass(frozen=True)
class CRF:
    """Dense CRF; the defaults are ToCo's.

    Args:
        iterations: of mean field.
        pos_w, pos_xy: weight of the kernel on position, and its σ in pixels.
        bi_w, bi_xy, bi_rgb: weight of the kernel on position and colour, its σ in pixels, and its
            σ on 0…255.

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
        for key in ("iterations", "pos_xy", "bi_xy", "bi_rgb"):
            self._expect(key, getattr(self, key) > 0, "a value above 0")
        for key in ("pos_w", "bi_w"):
            self._expect(key, getattr(self, key) >= 0, "0 or more")

    def _expect(self, key: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise InputError(
                f"task.evaluation.crf.{key}: expected {wanted}, got {getattr(self, key)}"
            )


def load_pydensecrf() -> ModuleType:
    """The optional package.

    Raises:
        InputError: it is not installed; call this before long work.
    """
    try:
        return importlib.import_module("pydensecrf.densecrf")
    except ImportError as error:
        raise InputError(
            f"dense CRF: pydensecrf cannot be imported ({error}); pip install -e '.[crf]', or turn "
            "it off with task.evaluation.crf=null"
        ) from error


def dense_crf(image: np.ndarray, probabilities: np.ndarray, crf: CRF = CRF()) -> np.ndarray:
    """Probabilities after mean field.

    Args:
        image: uint8 (H, W, 3) RGB.
        probabilities: (C, H, W) in [0, 1], summing to 1 over C.

    Shapes: -> float32 (C, H, W).

    Raises:
        InputError: pydensecrf is missing, or the arrays are not of this kind.
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
