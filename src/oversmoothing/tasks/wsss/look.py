"""What a network makes of one image: CAMs, refined label, segmentation mask.

Made as ``evaluation.py`` measures it: CAMs and refined label on the image squashed to a square, the
mask by multi-scale segmentation; all shown at the image's own size.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.tasks.wsss.cam import Present, multi_scale_cams, present_classes
from oversmoothing.tasks.wsss.crf import CRF, dense_crf
from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.objective import Method
from oversmoothing.tasks.wsss.pseudo import pseudo_labels
from oversmoothing.tasks.wsss.segment import multi_scale_probabilities


@dataclass(frozen=True)
class Look:
    """One image and what was found in it.

    Args:
        name: of the image.
        image: (H, W, 3) uint8.
        labels: M label values 1…K whose CAMs these are.
        cams: (M, H, W) in [0, 1].
        refined: (H, W) uint8, the pseudo label; 255 where unsure.
        mask: (H, W) uint8; None where the decoder was not trained.
        truth: (H, W) uint8, or None.
    """

    name: str
    image: np.ndarray
    labels: tuple[int, ...]
    cams: np.ndarray
    refined: np.ndarray
    mask: np.ndarray | None = None
    truth: np.ndarray | None = None


class Viewer:
    """Looks at images through a network.

    Args:
        network: trained; put into evaluation mode while it looks.
        method: its CAM scales and pseudo-label constants, and whether there is a decoder.
        evaluation: sizes and scales.
        crf: refines masks; None: none.
    """

    def __init__(
        self, network: Network, method: Method, evaluation: Evaluation, crf: CRF | None = None
    ) -> None:
        self.network, self.method, self.evaluation, self.crf = network, method, evaluation, crf

    @torch.no_grad()
    def look(
        self, name: str, image: Tensor, label: Tensor | None = None, truth: Tensor | None = None
    ) -> Look:
        """Looks at one image.

        Args:
            label: classes whose CAMs are wanted; None: those that the classifier finds.

        Shapes: image (3, H, W) uint8, label (K,), truth (H, W) uint8.
        """
        training = self.network.training
        self.network.eval()
        x = image.to(next(self.network.parameters()).device).float()[None] / 255
        square = F.interpolate(x, (self.evaluation.size, self.evaluation.size), mode="bilinear")
        label = self._found(square) if label is None else label[None].to(x)
        present = present_classes(label)
        cams, refined = self._cams(square, present)
        size, M = x.shape[-2:], int(present.valid.sum())
        found = Look(
            name=name,
            image=image.permute(1, 2, 0).cpu().numpy(),
            labels=tuple((present.index[0, :M] + 1).tolist()),
            cams=F.interpolate(cams, size, mode="bilinear")[0, :M].cpu().numpy(),
            refined=_bytes(F.interpolate(refined[None].float(), size, mode="nearest")[0, 0]),
            mask=self._mask(x[0], image) if self.method.segments else None,
            truth=None if truth is None else truth.cpu().numpy(),
        )
        self.network.train(training)
        return found

    def _found(self, square: Tensor) -> Tensor:
        """Classes of probability ½ or more, at least the likeliest. Shapes: -> (1, K)."""
        scores = self.network(square, segment=False).cls
        return ((scores >= 0) | (scores == scores.amax(dim=1, keepdim=True))).float()

    def _cams(self, square: Tensor, present: Present) -> tuple[Tensor, Tensor]:
        """CAMs (1, M, S, S) of the last layer, and the pseudo label (1, S, S) made of them."""
        method, S = self.method, self.evaluation.size
        cams, _ = multi_scale_cams(self.network, square, present, method.cam_scales)
        box = torch.tensor([[0, S, 0, S]], device=square.device)
        scores = (method.high, method.low)
        par = method.par().to(square.device)
        return cams, pseudo_labels(cams, present, square, box, par, *scores)

    def _mask(self, x: Tensor, image: Tensor) -> np.ndarray:
        ev = self.evaluation
        scales = ev.ms_scales or [1.0]
        p = multi_scale_probabilities(self.network, x, scales, ev.ms_size, ev.fusion)
        if self.crf is None:
            return _bytes(p.argmax(0))
        refined = dense_crf(image.permute(1, 2, 0).cpu().numpy(), p.cpu().numpy(), self.crf)
        return refined.argmax(0).astype(np.uint8)


def look_at(viewer: Viewer, data: ImageSet, id: str) -> Look:
    """An image of a data set, with its labels and its mask where there are any.

    Raises:
        InputError: a damaged file.
    """
    label = data.label(id) if id in data.present else None
    truth = data.mask(id) if id in data.mask_files else None
    return viewer.look(id, data.image(id), label, truth)


def distinct_classes(data: ImageSet, number: int) -> list[str]:
    """``number`` validation images of many classes, by a rule: nobody chose them.

    In the order of the list, every image with a class that none before it has; if these are too
    few, the first of the others. The order of the list is kept.
    """
    seen: set[int] = set()
    first = []
    for id in data.val:
        classes = set(data.present.get(id, ()))
        if classes - seen:
            first.append(id)
            seen |= classes
    chosen = {*[*first, *(id for id in data.val if id not in set(first))][:number]}
    return [id for id in data.val if id in chosen]


def _bytes(labels: Tensor) -> np.ndarray:
    return labels.to(torch.uint8).cpu().numpy()
