"""Accuracy of a classifier, and how alike the tokens of its blocks are."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from oversmoothing import distributed
from oversmoothing.backbones.vit.tokens import TokenStream
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.labelled import LabelledImages
from oversmoothing.errors import InputError
from oversmoothing.metrics import attention, smoothness
from oversmoothing.tasks.classification.evaluation import Evaluation

TOP = (1, 5)


class Evaluator:
    """Measures on the validation images of a data set.

    Args:
        data: whose ``val`` is measured on; classes are needed for accuracy alone.
        evaluation: how.
        device: where.
    """

    def __init__(
        self, data: LabelledImages | ImageSet, evaluation: Evaluation, device: torch.device
    ) -> None:
        self.data, self.evaluation, self.device = data, evaluation, device

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> dict[str, float]:
        """``val_acc1`` in percent, and ``val_acc5`` where there are more than 5 classes.

        Raises:
            InputError: a damaged image.
        """
        network.eval()
        top = self._top()
        right = torch.zeros(len(top), device=self.device)
        mine = self.data.val[distributed.rank() :: distributed.world()]
        for images, targets in self._batches(mine, self.data.target):
            best = network(images.to(self.device)).topk(max(top), dim=-1).indices
            hit = best == targets.to(self.device)[:, None]
            right += torch.stack([hit[:, :k].any(dim=-1).sum() for k in top])
        totals = distributed.sum_over_processes(list(right))
        count = len(self.data.val)
        return {f"val_acc{k}": 100 * float(n) / count for k, n in zip(top, totals)}

    @torch.no_grad()
    def layers(self, backbone: nn.Module) -> dict[str, list[float | None]]:
        """How alike the tokens of an image are after every block, means over images.

        Patch tokens of the residual stream and whole attention maps; every image by itself.

        Returns:
            ``cosine`` and ``effective_rank`` (float64), and ``attention_similarity``, None where
            a block has no attention; one value a block. Nothing for a backbone without blocks.
        """
        ids = self.layer_ids()
        if not ids or not isinstance(backbone, TokenStream):
            return {}
        backbone.eval()
        maps = (backbone.attention_maps(x) for x in self._images(ids))
        found = {"attention_similarity": attention.by_block(maps)}
        cosines, ranks = [], []
        for images in self._images(ids):
            for x in (x[:, backbone.prefix :] for x in backbone.layers(images)):
                cosines.append(smoothness.mean_cosine(x))
                ranks.append(smoothness.effective_rank(x))
        of_blocks = {"cosine": cosines, "effective_rank": ranks}
        return {k: _by_block(values, backbone.depth) for k, values in of_blocks.items()} | found

    def layer_ids(self) -> list[str]:
        """Validation images that ``layers`` looks at: of all classes, where they are sorted."""
        val = self.data.val
        count = min(len(val), self.evaluation.layer_images)
        return [val[i * len(val) // count] for i in range(count)]

    def conditions(self, head: str) -> dict[str, Any]:
        """How numbers came about, in words.

        Args:
            head: what classifies; empty: nothing does.
        """
        how = self.evaluation.described()
        layers = f"{len(self.layer_ids())} images of {self.data.name} val, evenly spaced, {how}"
        counted = f"{len(self.data.val)} images of {self.data.name} val, {how}, {head}"
        accuracies = {f"acc{k}": counted for k in self._top() if head}
        return {"layers": layers} | ({"val": accuracies} if accuracies else {})

    def _top(self) -> list[int]:
        return [k for k in TOP if k == 1 or k < len(self.data.classes)]

    def _images(self, ids: list[str]) -> Iterator[Tensor]:
        """One at a time: N×N attention maps of many heads are large."""
        for images, _ in self._batches(ids, lambda id: 0, batch=1, workers=0):
            yield images.to(self.device)

    def _batches(
        self,
        ids: list[str],
        class_of: Callable[[str], int],
        batch: int | None = None,
        workers: int | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Shapes: (b, 3, S, S), (b,)."""
        loader = DataLoader(
            _Prepared(self.data, self.evaluation, ids, class_of),
            batch_size=batch or self.evaluation.batch,
            num_workers=self.evaluation.workers if workers is None else workers,
            collate_fn=_stacked,
            generator=torch.Generator(),  # its own, or the loader would draw from the global one
        )
        for item in loader:
            if isinstance(item, InputError):
                raise item
            yield item


class _Prepared(Dataset):
    """Place in a list of ids -> image and class, or what is wrong with the file."""

    def __init__(
        self,
        data: LabelledImages | ImageSet,
        evaluation: Evaluation,
        ids: list[str],
        class_of: Callable[[str], int],
    ) -> None:
        self.data, self.evaluation, self.ids, self.class_of = data, evaluation, ids, class_of

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> tuple[Tensor, int] | InputError:
        id = self.ids[i]
        try:
            return self.evaluation.prepared(self.data.image(id)), self.class_of(id)
        except InputError as error:  # a worker would wrap its line in a traceback
            return error


def _stacked(items: list) -> tuple[Tensor, Tensor] | InputError:
    if errors := [item for item in items if isinstance(item, InputError)]:
        return errors[0]
    images, targets = zip(*items)
    return torch.stack(images), torch.tensor(targets)


def _by_block(values: list[Tensor], depth: int) -> list[float]:
    """Means over images of what was appended block by block, image by image."""
    return torch.cat(values).view(-1, depth).mean(dim=0).tolist()
