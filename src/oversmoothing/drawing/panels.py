"""Label maps and CAMs as colour images."""

import matplotlib
import numpy as np

from oversmoothing.data.images.classes import palette

HEAT = "turbo"
OPACITY = 0.55  # of a CAM on its image


def coloured(labels: np.ndarray) -> np.ndarray:
    """Paints label values in VOC's colours. Shapes: (H, W) uint8 -> (H, W, 3) uint8."""
    return palette()[labels]


def heat(image: np.ndarray, cam: np.ndarray) -> np.ndarray:
    """Lays a CAM on its image in grey.

    Shapes: image (H, W, 3) uint8, cam (H, W) in [0, 1] -> (H, W, 3) uint8.
    """
    colours = matplotlib.colormaps[HEAT](cam)[..., :3] * 255
    grey = image @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    return ((1 - OPACITY) * grey[..., None] + OPACITY * colours).round().astype(np.uint8)


def labels_in(*maps: np.ndarray | None) -> list[int]:
    """Returns the values that occur in label maps, in ascending order."""
    return sorted({int(v) for labels in maps if labels is not None for v in np.unique(labels)})
