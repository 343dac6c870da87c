"""Operations on batches."""

import math
from typing import Any

import torch
from torch import Tensor

from oversmoothing.data.images.convert import to_float
from oversmoothing.training.recipe import Recipe

Batch = dict[str, Any]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Moves the tensors of a batch to a device.

    There ``image`` is converted from uint8 to float32 in [0, 1], and ``mask`` to int64.
    """
    moved = {
        k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in batch.items()
    }
    for key, convert in {"image": to_float, "mask": Tensor.long}.items():
        if key in moved and moved[key].dtype == torch.uint8:
            moved[key] = convert(moved[key])
    return moved


def split(batch: Batch, parts: int) -> list[Batch]:
    """Splits tensors and lists with one entry per example into equal parts; copies other values."""
    B = len(batch["name"])
    size = math.ceil(B / parts)
    cuts = [slice(start, start + size) for start in range(0, B, size)]

    def cut(value: Any, part: slice) -> Any:
        each = isinstance(value, list) or (isinstance(value, Tensor) and value.dim() > 0)
        return value[part] if each and len(value) == B else value

    return [{key: cut(value, part) for key, value in batch.items()} for part in cuts]


def out_of_memory(trainer: Recipe, batch: Batch) -> str:
    """Returns the error message for a batch that does not fit into GPU memory."""
    now = math.ceil(len(batch["name"]) / trainer.accumulate)
    what, smaller = "examples", ""
    if "image" in batch:
        H, W = batch["image"].shape[-2:]
        what = f"images of {H}×{W}"
        crop = max(16, H * 3 // 64 * 16) + H % 2  # patches, or EMANet's grid plus 1
        smaller = f", or a smaller crop with task.augment.crop={crop}"
    return (
        f"out of GPU memory with {now} {what} at once; add trainer.accumulate="
        f"{2 * trainer.accumulate} ({math.ceil(now / 2)} at once), "
        f"trainer.precision=bf16{smaller}"
    )
