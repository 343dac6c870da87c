"""All that an evaluator of segmentations measures, as the result of a run."""

from typing import Any, Protocol

from torch import nn

from oversmoothing.tasks.base import weights_of


class _Evaluator(Protocol):
    network: nn.Module
    evaluation: Any  # has ``splits``

    def split(self, split: str) -> dict[str, Any]: ...

    def conditions(self, split: str) -> dict[str, str]: ...


def measured(evaluator: _Evaluator) -> dict[str, Any]:
    """Every stage of every split.

    Returns:
        What ``evaluator.split`` returns, ``conditions`` of it by split, and where the ``weights``
        came from: ``pretrained`` or ``from scratch``.

    Raises:
        InputError: a mask is missing, or a file is damaged.
    """
    splits = evaluator.evaluation.splits
    results: dict[str, Any] = {"weights": weights_of(evaluator.network.backbone)}
    for split in splits:
        results |= evaluator.split(split)
    return results | {"conditions": {split: evaluator.conditions(split) for split in splits}}
