"""Accuracy of a classifier, and similarity of the tokens after its blocks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.checks import at_least, require
from oversmoothing.lab.backbones.vit import TokenStream
from oversmoothing.lab.data.image_set import ImageSet, LabelledImages, to_float, to_tensor
from oversmoothing.lab.data.loading import evenly_spaced, read_ahead
from oversmoothing.metrics import attention, smoothness


@dataclass(frozen=True)
class Evaluation:
    """Settings of an ``Evaluator``.

    An image's shorter side is resized to S / ``crop`` (bicubic); then an S × S square is cut from
    its centre.

    Args:
        size: S, side of the network's input.
        crop: S / length of the shorter side; DeiT uses 0.875.
        layer_images: number of validation images, evenly spaced, whose tokens are compared after
            every block; 0: none.
        batch: number of images per forward pass.
        workers: number of processes that read images; None: one for each core.

    Raises:
        InputError: a value is out of range.
    """

    size: int = 224
    crop: float = 0.875
    layer_images: int = 64
    batch: int = 64
    workers: int | None = None

    def __post_init__(self) -> None:
        require(
            "task.evaluation",
            **at_least(1, size=self.size, batch=self.batch),
            **at_least(0, layer_images=self.layer_images, workers=self.workers),
            crop=(self.crop, 0 < self.crop <= 1, "above 0, at most 1"),
        )

    def prepared(self, image: Image.Image) -> Tensor:
        """Resizes and crops an image. Shapes: RGB image -> (3, S, S) uint8."""
        from torchvision.transforms import functional as TF  # takes seconds

        side = math.floor(self.size / self.crop)
        resized = TF.resize(image, side, TF.InterpolationMode.BICUBIC)
        return to_tensor(TF.center_crop(resized, self.size))

    def described(self) -> str:
        """Describes the preparation of images."""
        side = math.floor(self.size / self.crop)
        return f"shorter side resized to {side} px (bicubic), middle {self.size}×{self.size} px"


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
