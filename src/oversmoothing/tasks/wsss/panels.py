"""Images, label maps and CAMs as columns of coloured panels."""

from collections.abc import Sequence

import matplotlib
import numpy as np

from oversmoothing.data.images.classes import palette
from oversmoothing.tasks.wsss.look import Look

HEAT = "turbo"
OPACITY = 0.55  # of a heat map on its image

Column = tuple[str, Sequence[np.ndarray | None]]  # title; an image (H, W, 3) uint8 for every row


def coloured(labels: np.ndarray) -> np.ndarray:
    """Label values in VOC's colours. Shapes: (H, W) uint8 -> (H, W, 3) uint8."""
    return palette()[labels]


def heat(image: np.ndarray, cam: np.ndarray) -> np.ndarray:
    """A CAM on its image in grey. Shapes: (H, W, 3) uint8, (H, W) in [0, 1] -> (H, W, 3) uint8."""
    colours = matplotlib.colormaps[HEAT](cam)[..., :3] * 255
    grey = image @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    return ((1 - OPACITY) * grey[..., None] + OPACITY * colours).round().astype(np.uint8)


def strongest(look: Look) -> np.ndarray:
    """Heat map of the maximum over the classes of an image. Shapes: -> (H, W, 3) uint8."""
    return heat(look.image, look.cams.max(axis=0, initial=0.0))


def columns_of(looks: Sequence[Look], cams: Sequence[Column] = ()) -> list[Column]:
    """Image, truth, CAMs, refined label, mask; what no row has is left out.

    Args:
        cams: in the place of the strongest CAM.
    """
    found = [
        ("image", [look.image for look in looks]),
        ("ground truth", [_shown(look.truth) for look in looks]),
        *(cams or [("CAM", [strongest(look) for look in looks])]),
        ("refined label", [_shown(look.refined) for look in looks]),
        ("mask", [_shown(look.mask) for look in looks]),
    ]
    return [column for column in found if any(cell is not None for cell in column[1])]


def labels_in(looks: Sequence[Look]) -> list[int]:
    """Every label value that ``columns_of`` has a colour for, ascending."""
    maps = [m for look in looks for m in (look.truth, look.refined, look.mask) if m is not None]
    return sorted({int(value) for labels in maps for value in np.unique(labels)})


def _shown(labels: np.ndarray | None) -> np.ndarray | None:
    return None if labels is None else coloured(labels)
