"""Aggregators put into pretrained weights without training: tokens by block, and accuracy."""

from collections.abc import Callable
from typing import Any

import torch

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.vit.tokens import TokenStream
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.labelled import LabelledImages
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.classification.evaluation import Evaluation
from oversmoothing.tasks.classification.evaluator import Evaluator
from oversmoothing.tasks.classification.published import IMAGENET, classifier
from oversmoothing.tasks.classification.task import require_patches

ONE_SEED_AT_A_TIME = True


def run(
    data: LabelledImages | ImageSet,
    backbone: Callable[..., TokenStream],
    aggregators: list[Callable[..., Aggregator]],
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    evaluation: Evaluation,
) -> dict[int, dict[str, Any]]:
    """Measures one network as it is built.

    Args:
        data: anything with images to validate on; accuracy is measured where they have the 1000
            classes of ImageNet, by the classifier of the weights.
        backbone: builds the vision transformer from aggregators.
        aggregators: factories.
        seeds: one; it draws what has no weights.
        recorder: unused, nothing is trained.
        device: where to measure.
        evaluation: how.

    Returns:
        ``layers_before`` (see ``Evaluator.layers``), ``val_acc1`` and ``val_acc5`` where they can
        be measured, ``conditions``, which say so, and where the ``weights`` come from.

    Raises:
        InputError: a damaged file, or no validation images.
    """
    if not data.val:
        raise InputError(f"data {data.name}: has no validation images; choose other data")
    [seed] = seeds
    torch.manual_seed(seed)
    host = backbone(aggregators=aggregators).to(device)
    evaluator = Evaluator(data, evaluation, device)
    results: dict[str, Any] = {"layers_before": evaluator.layers(host)}
    of_imagenet = isinstance(data, LabelledImages) and len(data.classes) == IMAGENET
    network = classifier(backbone, host) if of_imagenet else None
    if network is not None:
        results |= evaluator.accuracy(network.to(device))
        results["conditions"] = evaluator.conditions("no training, classifier of the weights")
    else:
        why = "no classifier in the weights" if of_imagenet else f"{len(data.classes)} classes"
        results["conditions"] = evaluator.conditions("") | {"accuracy": f"not measured: {why}"}
    results["weights"] = "pretrained" if host.pretrained else "from scratch"
    return {seed: results}


def probe(
    backbone: Callable[..., TokenStream],
    aggregators: list[Callable[..., Aggregator]],
    evaluation: Evaluation,
) -> None:
    """Builds the network.

    Raises:
        InputError: what backbone and aggregators object to, a backbone without tokens, or a size
            that is no whole number of patches.
    """
    host = backbone(aggregators=aggregators)
    if not isinstance(host, TokenStream):
        raise InputError(
            f"backbone: task classification_eval looks at tokens, {type(host).__name__} has none; "
            "choose a vision transformer, backbone=deit_ti"
        )
    require_patches(host, {"evaluation.size": evaluation.size})
