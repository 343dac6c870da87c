"""Image classification: a network trained on images with one class each."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from oversmoothing import distributed
from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.cnn.cnn import CNN
from oversmoothing.backbones.vit.tokens import TokenStream
from oversmoothing.data.images.labelled import LabelledImages
from oversmoothing.data.loading import train_batches
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.classification.augment import Augment, labelled_image
from oversmoothing.tasks.classification.evaluation import Evaluation
from oversmoothing.tasks.classification.evaluator import Evaluator
from oversmoothing.tasks.classification.mix import Mix
from oversmoothing.tasks.classification.network import Classifier
from oversmoothing.tasks.classification.objective import Objective
from oversmoothing.training.loop import TrainingLoop
from oversmoothing.training.recipe import Recipe

ONE_SEED_AT_A_TIME = True
Backbone = Callable[..., TokenStream | CNN]


def run(
    data: LabelledImages,
    backbone: Backbone,
    aggregators: list[Callable[..., Aggregator]],
    trainer: Recipe,
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    augment: Augment,
    mix: Mix,
    evaluation: Evaluation,
    repeats: int = 1,
) -> dict[int, dict[str, Any]]:
    """Trains and evaluates one network.

    Args:
        data: images with one class each.
        backbone: builds the network from aggregators.
        aggregators: factories.
        trainer: the recipe.
        seeds: one; it draws weights, batches, augmentations and what is mixed.
        recorder: takes logs, checkpoints, the trained weights.
        device: where to train.
        augment: makes training images.
        mix: mixes the images of a batch.
        evaluation: how is measured.
        repeats: times that an image follows itself, augmented anew; an epoch keeps its length, so
            it sees 1/repeats of the images (repeated augmentation: Hoffer et al., CVPR 2020).

    Returns:
        ``val_acc1`` and, above 5 classes, ``val_acc5`` in percent after the last iteration,
        ``train_loss`` of the last batch that was logged, ``layers_before`` and ``layers_after``
        training (see ``Evaluator.layers``), ``conditions``, and where the ``weights`` come from.

    Raises:
        InputError: data without classes, or a damaged file.
    """
    _require_classes(data)
    [seed] = seeds
    torch.manual_seed(seed)
    network = Classifier(backbone(aggregators=aggregators), len(data.classes)).to(device)
    evaluator = Evaluator(data, evaluation, device)
    before = evaluator.layers(network.backbone)
    host = network.backbone
    sample = partial(labelled_image, data, augment, host.mean.cpu(), host.std.cpu())
    loader = partial(
        train_batches, data, sample, seed=seed, workers=trainer.workers, repeats=repeats
    )
    objective = Objective(mix, len(data.classes), seed)
    TrainingLoop(network, objective, loader, trainer, recorder, device).fit()
    recorder.save_weights(network.state_dict())
    results: dict[str, Any] = evaluator.accuracy(network)
    results |= {"train_loss": _last_loss(recorder)}
    results |= {"layers_before": before, "layers_after": evaluator.layers(network.backbone)}
    results["conditions"] = evaluator.conditions(
        "last iteration, one crop, classifier from scratch"
    )
    results["weights"] = "pretrained" if host.pretrained else "from scratch"
    return {seed: results}


def _require_classes(data: Any) -> None:
    if not isinstance(data, LabelledImages):
        raise InputError(
            f"data {data.name}: task classification needs one class an image; choose "
            "data=imagenet, imagenet100, digits or scene_crops"
        )


def _last_loss(recorder: Recorder) -> float | None:
    """From the log, which a resumed run has, too; None in processes that write none."""
    if distributed.rank() > 0:
        return None
    lines = (recorder.folder / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["loss_cls"][0]


def probe(
    backbone: Backbone,
    aggregators: list[Callable[..., Aggregator]],
    trainer: Recipe,
    augment: Augment,
    mix: Mix,
    evaluation: Evaluation,
    repeats: int,
) -> None:
    """Builds the network.

    Raises:
        InputError: what backbone and aggregators object to, a size that is no whole number of
            patches, a batch that cannot be mixed, or repeats below 1.
    """
    if repeats < 1:
        raise InputError(f"task.repeats: expected 1 or more, got {repeats}")
    share = trainer.batch_size // distributed.world()
    if mix.mixes and share % 2:
        raise InputError(
            f"trainer.batch_size: images are mixed in pairs, and each process has {share} of them; "
            "make it even, or set task.mix.prob=0"
        )
    host = backbone(aggregators=aggregators)
    Classifier(host, 2)
    require_patches(host, {"augment.size": augment.size, "evaluation.size": evaluation.size})


def require_patches(host: TokenStream | CNN, sizes: dict[str, int]) -> None:
    """Raises InputError where a size is no whole number of patches."""
    for key, size in sizes.items():
        if size < host.patch or size % host.patch:
            raise InputError(
                f"task.{key}: expected a multiple of the patch, {host.patch} px, got {size}"
            )
