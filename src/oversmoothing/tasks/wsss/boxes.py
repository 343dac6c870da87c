"""Image boxes: which part of a padded crop is image."""

import torch
from torch import Tensor


def inside(box: Tensor, height: int, width: int) -> Tensor:
    """Boolean (B, H, W): True in half-open boxes (row0, row1, col0, col1)."""
    rows = torch.arange(height, device=box.device)[None, :, None]
    cols = torch.arange(width, device=box.device)[None, None, :]
    row0, row1, col0, col1 = box.T[:, :, None, None]
    return (rows >= row0) & (rows < row1) & (cols >= col0) & (cols < col1)
