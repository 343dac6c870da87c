"""Pictures of a wsss run: images with CAMs, refined labels and masks, and token similarity.

The outputs follow the ``Evaluator``: CAMs and refined label are computed on the image squashed to a
square, the mask by multi-scale segmentation. All are returned at the image's own size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.lab.data.image_set import ImageSet, to_array, to_float
from oversmoothing.lab.drawing.grid import Column, coloured, draw_grid, heat, labels_in
from oversmoothing.lab.drawing.leave import leave
from oversmoothing.lab.drawing.tokens import draw_tokens, token_rows
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.wsss.crf import CRF, dense_crf
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator
from oversmoothing.lab.tasks.wsss.labels import Labeller, resized, resized_labels
from oversmoothing.lab.tasks.wsss.network import Network, present_classes, segmented
from oversmoothing.lab.tasks.wsss.settings import Evaluation, Method


@dataclass(frozen=True)
class Look:
    """One image and the network's output for it.

    Args:
        name: of the image.
        image: (H, W, 3) uint8.
        labels: M label values 1…K, the classes of ``cams``.
        cams: (M, H, W) in [0, 1].
        refined: pseudo label (H, W) uint8; 255: unsure.
        mask: (H, W) uint8; None if the decoder was not trained.
        truth: (H, W) uint8, or None.
    """

    name: str
    image: np.ndarray
    labels: tuple[int, ...]
    cams: np.ndarray
    refined: np.ndarray
    mask: np.ndarray | None = None
    truth: np.ndarray | None = None


@dataclass(eq=False)
class Viewer:
    """Computes the outputs of a network for images.

    Args:
        network: trained; it runs in evaluation mode, and its mode is restored.
        method: CAM scales and constants of pseudo labels; decides whether there is a decoder.
        evaluation: sizes and scales.
        crf: refines masks; None: no CRF.
        known: limit masks to background and the classes whose CAMs are made.
    """

    network: Network
    method: Method
    evaluation: Evaluation
    crf: CRF | None = None
    known: bool = False

    def __post_init__(self) -> None:
        self.labeller = Labeller(self.network, self.evaluation.shown(self.method))

    @torch.no_grad()
    def look(
        self, name: str, image: Tensor, label: Tensor | None = None, truth: Tensor | None = None
    ) -> Look:
        """Computes the outputs for one image.

        Args:
            name: of the image.
            image: the image.
            label: classes whose CAMs are computed; None: those that the classifier finds.
            truth: mask, or None.

        Shapes: image (3, H, W) uint8, label (K,), truth (H, W) uint8.
        """
        training = self.network.training
        self.network.eval()
        try:
            return self._look(name, image, label, truth)
        finally:
            self.network.train(training)

    def _look(self, name: str, image: Tensor, label: Tensor | None, truth: Tensor | None) -> Look:
        x = to_float(image.to(next(self.network.parameters()).device))[None]
        square = resized(x, (self.evaluation.size, self.evaluation.size))
        label = self._found(square) if label is None else label[None].to(x)
        present = present_classes(label)
        cams, _ = self.labeller.cams(square, present)
        refined = self.labeller.pseudo(cams, present, square)
        size, M = x.shape[-2:], int(present.valid.sum())
        return Look(
            name=name,
            image=to_array(image),
            labels=tuple((present.index[0, :M] + 1).tolist()),
            cams=resized(cams, size)[0, :M].cpu().numpy(),
            refined=resized_labels(refined, size)[0].to(torch.uint8).cpu().numpy(),
            mask=self._mask(image, label) if self.method.segments else None,
            truth=None if truth is None else truth.cpu().numpy(),
        )

    def _found(self, square: Tensor) -> Tensor:
        """Returns classes of probability ≥ ½, or else the most probable one. Shapes: -> (1, K)."""
        scores = self.network(square, segment=False).cls
        return ((scores >= 0) | (scores == scores.amax(dim=1, keepdim=True))).float()

    def _mask(self, image: Tensor, label: Tensor) -> np.ndarray:
        """Segments an image. Shapes: image (3, H, W), label (1, K) -> (H, W)."""
        p = segmented(self.network, image, self.evaluation)
        if self.known:
            p[1:][label[0] == 0] = 0
        p = dense_crf(image, p, self.crf) if self.crf else p
        return p.max(0).indices.byte().cpu().numpy()


def look_at(viewer: Viewer, data: ImageSet, id: str) -> Look:
    """Computes the outputs for an image of a data set, with its label and mask if it has them."""
    label = data.label(id) if id in data.present else None
    truth = data.mask(id) if id in data.mask_files else None
    return viewer.look(id, data.image(id), label, truth)


def distinct_classes(data: ImageSet, number: int) -> list[str]:
    """Chooses ``number`` validation images of many classes.

    In the order of the list, these are the images with a class that no image before them has. If
    there are too few, the first other images are added. The result keeps the order of the list.
    """
    seen: set[int] = set()
    first = []
    for id in data.val:
        if new := set(data.present.get(id, ())) - seen:
            first.append(id)
            seen |= new
    chosen = {*[*first, *(id for id in data.val if id not in set(first))][:number]}
    return [id for id in data.val if id in chosen]


NUMBER = 4  # images that a run shows


def leave_pictures(
    evaluator: Evaluator, recorder: Recorder, seed: int, result: dict[str, Any]
) -> None:
    """Saves ``pictures-seed<seed>.png`` and ``tokens-seed<seed>.png`` in a run's folder.

    They show validation images chosen by ``distinct_classes``, and token similarity by block.

    Args:
        result: of the seed, with ``layers_before`` and ``layers_after``.
    """

    def draw() -> dict[str, Any]:
        data = evaluator.data
        viewer = Viewer(evaluator.network, evaluator.method, evaluator.evaluation)
        looks = [look_at(viewer, data, id) for id in distinct_classes(data, NUMBER)]
        tokens = draw_tokens(token_rows({"": [result]}))
        return {"pictures": draw_looks(looks, data.label_names), "tokens": tokens}

    leave(recorder, seed, draw)


def draw_looks(
    looks: Sequence[Look], label_names: Sequence[str], cams: Sequence[Column] = ()
) -> Figure:
    """Draws image, truth, CAMs, refined label and mask; a row for each image, and a legend.

    Args:
        looks: one for each row.
        label_names: names of the labels 0, 1, …
        cams: columns that replace the strongest CAM.
    """
    maps = [labels for look in looks for labels in (look.truth, look.refined, look.mask)]
    columns = [
        ("image", [look.image for look in looks]),
        ("ground truth", [_shown(look.truth) for look in looks]),
        *(cams or [("CAM", [strongest(look) for look in looks])]),
        ("refined label", [_shown(look.refined) for look in looks]),
        ("mask", [_shown(look.mask) for look in looks]),
    ]
    return draw_grid(_filled(columns), labels_in(*maps), label_names)


def _filled(columns: Sequence[Column]) -> list[Column]:
    """Removes empty columns."""
    return [column for column in columns if any(cell is not None for cell in column[1])]


def draw_pair(pair: Sequence[tuple[str, Sequence[Look]]], label_names: Sequence[str]) -> Figure:
    """Draws the outputs of several networks for the same images: image, truth, CAMs and masks.

    Args:
        pair: title and looks of each network.
        label_names: names of the labels 0, 1, …
    """
    first = pair[0][1]
    maps = [look.truth for look in first] + [look.mask for _, looks in pair for look in looks]
    columns = [
        ("image", [look.image for look in first]),
        ("ground truth", [_shown(look.truth) for look in first]),
        *((f"CAM, {title}", [strongest(look) for look in looks]) for title, looks in pair),
        *((f"mask, {title}", [_shown(look.mask) for look in looks]) for title, looks in pair),
    ]
    return draw_grid(_filled(columns), labels_in(*maps), label_names)


def strongest(look: Look) -> np.ndarray:
    """Overlays the maximum of an image's CAMs on the image. Shapes: -> (H, W, 3) uint8."""
    return heat(look.image, look.cams.max(axis=0, initial=0.0))


def _shown(labels: np.ndarray | None) -> np.ndarray | None:
    return None if labels is None else coloured(labels)
