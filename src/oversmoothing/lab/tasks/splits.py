"""Measures segmentations on the splits of an image set, for the tasks wsss and segmentation."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from oversmoothing import distributed
from oversmoothing.lab.data.image_set import IGNORE, ImageSet
from oversmoothing.lab.data.loading import evaluation_items, evenly_spaced
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import weights_of
from oversmoothing.lab.tasks.overlap import Confusion, Overlap


@dataclass(eq=False)
class SplitEvaluator(ABC):
    """Measures the IoU of every stage of a network's predictions on a split.

    A subclass defines the stages by ``counts`` and describes them by ``conditions``.

    Args:
        network: to evaluate; has a ``backbone``.
        data: images and masks.
        evaluation: what to measure; has ``splits``, ``limit``, ``ms_limit`` and ``workers``.
        device: of the network.
        recorder: shows progress.
    """

    network: nn.Module
    data: ImageSet
    evaluation: Any
    device: torch.device
    recorder: Recorder

    @abstractmethod
    def counts(self, split: str) -> Mapping[str, Overlap]:
        """Counts this process's share of the pixels, for every stage.

        A process without images must also return all stages, since counts are summed over
        processes.
        """

    @abstractmethod
    def more(self, counts: Mapping[str, Any]) -> dict[str, float]:
        """Returns further numbers of a split, from the counts of all processes."""

    @abstractmethod
    def conditions(self, split: str) -> dict[str, str]:
        """Describes how the numbers of every stage are measured."""

    def measure(self) -> dict[str, Any]:
        """Measures every split of the evaluation.

        Returns:
            The results of ``split``, ``conditions`` by split, and the origin of the ``weights``.

        Raises:
            InputError: see ``split``.
        """
        results: dict[str, Any] = {"weights": weights_of(self.network.backbone)}
        for split in self.evaluation.splits:
            results |= self.split(split)
        conditions = {split: self.conditions(split) for split in self.evaluation.splits}
        return results | {"conditions": conditions}

    def split(self, split: str) -> dict[str, Any]:
        """Measures one split.

        Returns:
            ``<split>_<stage>_miou`` and ``<split>_<stage>_iou``, per class, in percent, and
            ``<split>_<name>`` for the names in ``more``.

        Raises:
            InputError: a mask is missing, or a file is damaged.
        """
        self.data.require_masks(split)
        self.network.eval()
        counts = self.counts(split)
        results: dict[str, Any] = {}
        common = self.common()
        for stage, confusion in counts.items():
            confusion.all_reduce()
            results[f"{split}_{stage}_miou"] = confusion.miou()
            if common is not None:
                results[f"{split}_{stage}_common_miou"] = confusion.miou(common)
            results[f"{split}_{stage}_iou"] = dict(zip(self.data.label_names, confusion.iou()))
        return results | {f"{split}_{name}": value for name, value in self.more(counts).items()}

    def common(self) -> set[int] | None:
        """Returns the labels for the separate mean ``common_miou``; None: there is no such mean."""
        return None

    def ids(self, split: str, multi_scale: bool = False) -> list[str]:
        """Returns the evenly spaced images of a split that all processes measure together."""
        ev, every = self.evaluation, getattr(self.data, split)
        limits = (ev.limit, ev.ms_limit if multi_scale else None, len(every))
        return evenly_spaced(every, min(limit for limit in limits if limit is not None))

    def share(self, ids: Sequence[str]) -> Sequence[str]:
        """Returns the images that this process measures."""
        return ids[distributed.rank() :: distributed.world()]

    def items(self, ids: Sequence[str], text: str) -> Iterator[dict[str, Any]]:
        """Reads images as ``evaluation_items`` does, with a progress bar named ``text``."""
        with self.recorder.progress(len(ids), text) as bar:
            for item in evaluation_items(self.data, ids, self.evaluation.workers):
                yield item
                bar.update(1)

    def confusion(self, unsure: str = "wrong") -> Confusion:
        """Creates an empty confusion matrix for the labels of the data."""
        return Confusion(len(self.data.label_names), unsure)


def miou_of_one_label(data: ImageSet, evaluation: Any, split: str) -> float:
    """Returns the mIoU in percent if every pixel gets the most frequent label of a split.

    All other labels that occur have an IoU of 0. Without any label it is NaN.
    """
    every = getattr(data, split)
    ids = evenly_spaced(every, min(len(every), evaluation.limit or len(every)))
    counts = torch.zeros(IGNORE + 1, dtype=torch.int64)
    for id in ids:
        counts += data.mask(id).flatten().bincount(minlength=IGNORE + 1)
    labels = counts[:IGNORE]
    return (100 * labels.max() / labels.sum() / (labels > 0).sum()).item()


def listed(numbers: Sequence[float]) -> str:
    """Formats numbers for conditions: ``0.5, 1``."""
    return ", ".join(f"{number:g}" for number in numbers)
