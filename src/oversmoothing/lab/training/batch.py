"""Operations on batches."""

import math
from typing import Any

import torch
from torch import Tensor

from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.training.recipe import Recipe

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
    share = len(batch["name"])
    what, ways = "examples", []
    finer = (k for k in range(trainer.accumulate + 1, share + 1) if share % k == 0)
    if parts := next(finer, None):
        ways += [f"trainer.accumulate={parts} ({share // parts} at once)"]
    if trainer.precision == "fp32":
        ways += ["trainer.precision=bf16"]
    if "image" in batch:
        H, W = batch["image"].shape[-2:]
        what = f"images of {H}×{W}"
        side = max(16, H * 3 // 64 * 16) + H % 2  # patches, or EMANet's grid plus 1
        ways += [f"task.augment.{'size' if 'target' in batch else 'crop'}={side}"]
    now = math.ceil(share / trainer.accumulate)
    advice = f"add {', or '.join(ways)}" if ways else "choose a smaller backbone"
    return f"out of GPU memory with {now} {what} at once; {advice}"
