"""Tells the precision in which a backbone computes."""

import torch


def in_bf16_on_cpu(device: torch.device) -> bool:
    """Whether a CPU runs under autocast to bf16, outside ``torch.compile``."""
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return device.type == "cpu" and bf16 and not torch.compiler.is_compiling()
