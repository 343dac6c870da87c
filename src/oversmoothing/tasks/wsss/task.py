"""Weakly supervised segmentation: image-level labels in, pixel labels out, in a single stage."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.backbones.vit.vit import ViT
from oversmoothing.data.images.augment import Augment, labelled_crop
from oversmoothing.data.images.voc import ImageSet
from oversmoothing.data.loading import train_batches
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.splits import measured
from oversmoothing.tasks.wsss.adaptation import adapt
from oversmoothing.tasks.wsss.crf import load_pydensecrf
from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.evaluator import Evaluator
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.objective import Method, Objective
from oversmoothing.tasks.wsss.pictures import leave_pictures
from oversmoothing.tasks.wsss.tokens import token_layers
from oversmoothing.training.adamw_poly import AdamWPoly
from oversmoothing.training.loop import TrainingLoop

ONE_SEED_AT_A_TIME = True
TOKEN_IMAGES = 64  # on which token similarity is measured


def run(
    data: ImageSet,
    backbone: Callable[..., ViT],
    aggregators: list[Callable[..., Aggregator]],
    trainer: AdamWPoly,
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    method: Method,
    augment: Augment,
    evaluation: Evaluation,
    adaptation: int = 0,
    aux_block: int = -3,
) -> dict[int, dict[str, Any]]:
    """Trains and evaluates one network.

    Args:
        data: images, their labels, and masks to evaluate on.
        backbone: builds the ViT from aggregators.
        aggregators: factories.
        trainer: the recipe.
        seeds: one; it draws new layers, batches and augmentations.
        recorder: takes logs, checkpoints, the trained weights.
        device: where to train.
        method: losses and pseudo labels.
        augment: makes training crops.
        evaluation: what is measured.
        adaptation: iterations of a stage before the training that gets the pretrained weights
            used to the aggregator, without labels.
        aux_block: block whose output feeds the auxiliary classifier.

    Raises:
        InputError: data without background, or a mask of another size than its image.

    Returns:
        ``<split>_<stage>_miou`` and ``_iou`` for the stages cam, aux_cam, pseudo, seg, seg_ms and
        seg_crf in percent, ``conditions`` of each, ``layers_before`` and ``layers_after`` training
        (token cosine and effective rank by block), and where the ``weights`` come from.
    """
    [seed] = seeds
    torch.manual_seed(seed)
    _require_background(data)
    network = untrained(backbone, aggregators, data.label_names, aux_block).to(device)
    evaluator = Evaluator(network, data, method, evaluation, device, recorder)
    for split in evaluation.splits:
        data.require_sizes(evaluator.ids(split))
    before = _tokens(evaluator)
    sample = partial(labelled_crop, data, augment)
    loader = partial(train_batches, data, sample, seed=seed, workers=trainer.workers)
    if adaptation:
        teacher = backbone(aggregators=[NoAggregator]).to(device)
        adapt(network.backbone, teacher, adaptation, loader, trainer, recorder, device)
    TrainingLoop(network, Objective(method, network), loader, trainer, recorder, device).fit()
    recorder.save_weights(network.state_dict())
    results = {**measured(evaluator), "layers_before": before, "layers_after": _tokens(evaluator)}
    leave_pictures(evaluator, recorder, seed, results)
    return {seed: results}


def untrained(
    backbone: Callable[..., ViT],
    aggregators: list[Callable[..., Aggregator]],
    label_names: Sequence[str],
    aux_block: int,
) -> Network:
    """The network of a data set whose labels, background first, have these names."""
    return Network(backbone(aggregators=aggregators), len(label_names) - 1, aux_block)


def _require_background(data: ImageSet) -> None:
    if not data.background:
        raise InputError(
            f"data {data.name}: has no background, which CAMs need; choose VOC or COCO"
        )


def _tokens(evaluator: Evaluator) -> dict[str, list[float]]:
    """Token similarity by block on the first validation images, squashed to a square."""
    data, size = evaluator.data, evaluator.evaluation.size
    images = (data.image(id)[None].float() / 255 for id in data.val[:TOKEN_IMAGES])
    square = (F.interpolate(i, (size, size), mode="bilinear").to(evaluator.device) for i in images)
    return token_layers(evaluator.network.backbone, square)


def probe(
    backbone: Callable[..., ViT],
    aggregators: list[Callable[..., Aggregator]],
    augment: Augment,
    evaluation: Evaluation,
    aux_block: int,
    adaptation: int,
) -> None:
    """Builds the network.

    Raises:
        InputError: there is no pydensecrf, what backbone and aggregators object to, a block that
            is not there, or a crop or an evaluation size that is no whole number of patches.
    """
    if evaluation.crf:
        load_pydensecrf()
    if adaptation < 0:
        raise InputError(f"task.adaptation: expected 0 or more iterations, got {adaptation}")
    vit = backbone(aggregators=aggregators)
    for key, size in {"augment.crop": augment.crop, "evaluation.size": evaluation.size}.items():
        if size < vit.patch or size % vit.patch:
            raise InputError(
                f"task.{key}: expected a multiple of the patch, {vit.patch} px, got {size}"
            )
    if not -vit.depth <= aux_block < vit.depth:
        raise InputError(
            f"task.aux_block: expected a block 0 to {vit.depth - 1}, or -1 for the last, "
            f"got {aux_block}"
        )
