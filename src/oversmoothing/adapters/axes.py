"""The axes of tokens in a tensor, such as a feature map: conversion to (B, N, C) and back."""

from torch import Tensor

from oversmoothing.errors import InputError

LAYOUTS = ("BNC", "NBC", "BCN", "BCHW", "BHWC", "NC")
MEANING = "B samples, N tokens or nodes, C channels, H rows, W columns"


def check_layout(layout: str | None) -> None:
    """Raises InputError for a layout that is not one of ``LAYOUTS``."""
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")


def to_tokens(x: Tensor, layout: str) -> Tensor:
    """Returns tokens (B, N, C) of a tensor in a layout; nodes (N, C) stay as they are."""
    match layout:
        case "NBC":
            return x.transpose(0, 1)
        case "BCN":
            return x.mT
        case "BCHW":
            return x.flatten(2).mT
        case "BHWC":
            return x.flatten(1, 2)
    return x


def from_tokens(tokens: Tensor, like: Tensor, layout: str) -> Tensor:
    """Returns tokens (B, N, C) in a layout, with the shape of ``like``."""
    match layout:
        case "NBC":
            return tokens.transpose(0, 1)
        case "BCN" | "BCHW":
            return tokens.mT.reshape(like.shape)
    return tokens.reshape(like.shape)
