"""Converts images between PIL, uint8 tensor, uint8 array and float tensor."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def to_tensor(image: Image.Image) -> Tensor:
    """Converts an image to a tensor. Shapes: RGB image -> (3, H, W), uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def to_array(image: Tensor) -> np.ndarray:
    """Converts a tensor to an array. Shapes: (3, H, W) uint8 -> (H, W, 3) uint8."""
    return image.permute(1, 2, 0).contiguous().cpu().numpy()


def to_pil(image: Tensor) -> Image.Image:
    """Converts a tensor to an image. Shapes: (3, H, W) uint8 -> RGB image."""
    return Image.fromarray(to_array(image))


def to_float(image: Tensor) -> Tensor:
    """Divides by 255, on the tensor's device. Shapes: uint8 -> float32 in [0, 1], same shape."""
    return image.float() / 255
