"""Accuracy of a classifier, and similarity of the tokens after its blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.lab.backbones.vit.tokens import TokenStream
from oversmoothing.lab.data.batches import evenly_spaced
from oversmoothing.lab.data.images.convert import to_float
from oversmoothing.lab.data.images.image_set import ImageSet
from oversmoothing.lab.data.images.labelled_images import LabelledImages
from oversmoothing.lab.data.loading import read_ahead
from oversmoothing.lab.tasks.classification.evaluation import Evaluation
from oversmoothing.metrics import attention, smoothness

TOP = (1, 5)


@dataclass(eq=False)
class Evaluator:
    """Measures networks on the validation images of a data set.

    Args:
        data: images; only ``accuracy`` needs classes.
        evaluation: the settings.
        device: of the networks.
    """

    data: LabelledImages | ImageSet
    evaluation: Evaluation
    device: torch.device

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> dict[str, float]:
        """Returns ``val_acc1`` in percent, and ``val_acc5`` if there are more than 5 classes.

        Raises:
            InputError: an image is damaged.
        """
        network.eval()
        top = self._top()
        right = torch.zeros(len(top), device=self.device)
        mine, size = self.data.val[distributed.rank() :: distributed.world()], self.evaluation.batch
        batches = [mine[start : start + size] for start in range(0, len(mine), size)]
        read = partial(_classified, self.data, self.evaluation)
        for images, targets in read_ahead(read, batches, self.evaluation.workers):
            images = to_float(images.to(self.device, non_blocking=True))
            best = network(images).topk(max(top), dim=-1).indices
            hit = best == targets.to(self.device)[:, None]
            right += torch.stack([hit[:, :k].any(dim=-1).sum() for k in top])
        totals = distributed.sum_over_processes(list(right))
        count = len(self.data.val)
        return {f"val_acc{k}": 100 * float(n) / count for k, n in zip(top, totals)}

    @torch.no_grad()
    def layers(self, backbone: nn.Module) -> dict[str, list[float | None]]:
        """Measures the similarity of an image's tokens after every block, averaged over images.

        It is measured on the patch tokens of the residual stream and on whole attention maps.

        Returns:
            ``cosine``, ``effective_rank``, ``token_variance`` and ``attention_similarity``, None
            for a block without attention; one value per block. Empty for a backbone without blocks.
        """
        if not self.layer_ids() or not isinstance(backbone, TokenStream):
            return {}
        backbone.eval()
        similarity = attention.by_block(backbone.attention_maps(x) for x in self._images())
        tokens = (
            [x[:, backbone.prefix :] for x in backbone.layers(image)] for image in self._images()
        )
        return smoothness.by_block(tokens) | {"attention_similarity": similarity}

    def layer_ids(self) -> list[str]:
        """Returns evenly spaced validation images for ``layers``, and so images of many classes."""
        return evenly_spaced(self.data.val, self.evaluation.layer_images)

    def conditions(self, head: str) -> dict[str, Any]:
        """Describes how the numbers are measured.

        Args:
            head: description of the classifier; empty if there is none.
        """
        how = self.evaluation.described()
        layers = f"{len(self.layer_ids())} images of {self.data.name} val, evenly spaced, {how}"
        counted = f"{len(self.data.val)} images of {self.data.name} val, {how}, {head}"
        accuracies = {f"acc{k}": counted for k in self._top() if head}
        return {"layers": layers} | ({"val": accuracies} if accuracies else {})

    def _top(self) -> list[int]:
        return [k for k in TOP if k == 1 or k < len(self.data.classes)]

    def _images(self) -> Iterator[Tensor]:
        """Yields images for ``layers``, one by one, since N×N attention maps need much memory."""
        for id in self.layer_ids():
            image = self.evaluation.prepared(self.data.pil_image(id))
            yield to_float(image[None].to(self.device))


def _classified(
    data: LabelledImages, evaluation: Evaluation, ids: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Reads a batch. Shapes: -> (b, 3, S, S) uint8, (b,)."""
    images = torch.stack([evaluation.prepared(data.pil_image(id)) for id in ids])
    return images, torch.tensor([data.target(id) for id in ids])
