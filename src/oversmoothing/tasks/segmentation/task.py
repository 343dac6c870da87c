"""Supervised semantic segmentation: masks in, masks out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.cnn.cnn import CNN, synchronised
from oversmoothing.backbones.vit.vit import ViT
from oversmoothing.data.images.joint import JointAugment, masked_crop
from oversmoothing.data.images.voc import ImageSet
from oversmoothing.data.loading import train_batches
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.segmentation.evaluation import Evaluation
from oversmoothing.tasks.segmentation.evaluator import Evaluator
from oversmoothing.tasks.segmentation.network import Segmenter
from oversmoothing.tasks.segmentation.objective import PixelCrossEntropy
from oversmoothing.tasks.segmentation.pictures import leave_pictures
from oversmoothing.tasks.splits import measured
from oversmoothing.training.loop import TrainingLoop
from oversmoothing.training.recipe import Recipe

ONE_SEED_AT_A_TIME = True


def run(
    data: ImageSet,
    backbone: Callable[..., CNN | ViT],
    aggregators: list[Callable[..., Aggregator]],
    trainer: Recipe,
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    augment: JointAugment,
    evaluation: Evaluation,
    head_dim: int = 256,
    dropout: float = 0.1,
    aux_weight: float = 0.0,
) -> dict[int, dict[str, Any]]:
    """Trains and evaluates one network.

    Args:
        data: images and masks.
        backbone: builds the network that hosts the aggregators.
        aggregators: factories.
        trainer: the recipe.
        seeds: one; it draws new layers, batches and augmentations.
        recorder: takes logs, checkpoints, the trained weights.
        device: where to train.
        augment: makes training crops.
        evaluation: what is measured.
        head_dim: channels before the classifier.
        dropout: before the classifier.
        aux_weight: of an auxiliary head's loss; 0: no such head.

    Returns:
        ``<split>_seg_miou``, ``_seg_iou``, ``_seg_ms_miou``, ``_seg_ms_iou`` in percent, their
        ``conditions``, and where the ``weights`` come from.
    """
    [seed] = seeds
    data.require_masks("train", *evaluation.splits)
    torch.manual_seed(seed)
    labels, head = data.label_names, (head_dim, dropout, aux_weight)
    network = untrained(backbone, aggregators, labels, *head).to(device)
    network.to(memory_format=torch.channels_last)  # a fifth faster on a CPU, more on a GPU
    sample = partial(masked_crop, data, augment)
    loader = partial(train_batches, data, sample, seed=seed, workers=trainer.workers)
    evaluator = Evaluator(network, data, evaluation, device, recorder)
    for split in evaluation.splits:
        data.require_sizes(evaluator.ids(split))
    TrainingLoop(network, PixelCrossEntropy(aux_weight), loader, trainer, recorder, device).fit()
    recorder.save_weights(network.state_dict())
    results = measured(evaluator)
    leave_pictures(evaluator, recorder, seed)
    return {seed: results}


def untrained(
    backbone: Callable[..., CNN | ViT],
    aggregators: list[Callable[..., Aggregator]],
    label_names: Sequence[str],
    head_dim: int,
    dropout: float,
    aux_weight: float,
) -> Segmenter:
    """The network for these labels, its batch norms synchronised where processes share batches."""
    host = backbone(aggregators=aggregators)
    return synchronised(Segmenter(host, len(label_names), head_dim, dropout, aux_weight > 0))


def probe(
    backbone: Callable[..., CNN | ViT],
    aggregators: list[Callable[..., Aggregator]],
    augment: JointAugment,
    head_dim: int,
    dropout: float,
    aux_weight: float,
) -> None:
    """Builds the network.

    Raises:
        InputError: what backbone, aggregators and head object to, or a crop that is no whole
            number of patches.
    """
    if aux_weight < 0:
        raise InputError(f"task.aux_weight: expected 0 or more, got {aux_weight}")
    host = backbone(aggregators=aggregators)
    Segmenter(host, 2, head_dim, dropout, aux_weight > 0)
    if augment.crop < host.patch or augment.crop % host.patch:
        raise InputError(
            f"task.augment.crop: expected a multiple of the patch, {host.patch} px, "
            f"got {augment.crop}"
        )
