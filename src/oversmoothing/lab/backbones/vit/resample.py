"""Bicubic resampling of position embeddings whose gradient is deterministic on a GPU."""

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.backbones.precision import Replacing


def resampling(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which antialiased interpolation is deterministic if torch's setting requires it.

    timm resamples position embeddings by antialiased interpolation, whose gradient in torch is not
    deterministic on GPUs.
    """
    wanted = torch.are_deterministic_algorithms_enabled() and device.type != "cpu"
    return Replacing(F.interpolate, _interpolate) if wanted else contextlib.nullcontext()


def _interpolate(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return (interpolated if kwargs.get("antialias") else F.interpolate)(x, *args, **kwargs)


def interpolated(x: Tensor, size: tuple[int, int], **options: Any) -> Tensor:
    """Computes ``F.interpolate`` of images by matrix products in float64, where TF32 is not used.

    Shapes: (B, C, H, W) -> (B, C, *size).
    """
    rows, columns = (_matrix(n, m, x, options) for n, m in zip(x.shape[-2:], size))
    return (rows.T @ x.double() @ columns).to(x.dtype)


def _matrix(n: int, m: int, x: Tensor, options: dict[str, Any]) -> Tensor:
    """Returns the weights of n old pixels in m new pixels, (n, m) float64."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        pixels = torch.eye(n, device=x.device)[None, None]
        return F.interpolate(pixels, size=(n, m), **options)[0, 0].double()
