"""Measures attention maps, tokens and singular values by layer (ContraNorm, Figure 2).

oversmoothing figure layers

The networks are the pretrained DeiT-Ti and a small BERT that a run of the table text_rates trained
on SST-2, as BERT's pretrained weights were not available.
"""

from collections.abc import Iterator
from itertools import tee
from typing import Any

import torch
from torch import Tensor

from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.tokens import mean_and_std
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.diagnose import Subject, of_run
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.papers.depth_curves import draw_curves, write_rows
from oversmoothing.metrics.smoothness import singular_values

DEIT = ["experiment=cls_eval", "aggregator=none"]
BERT = ["experiment=glue_sst2_small", "aggregator=none", "backbone.depth=12", "trainer.lr=1e-4"]
SEEDS, SAMPLES = (1, 2), 64  # of the BERT; images and sentences
MEASURES = ("cosine", "effective_rank", "attention_similarity")
NEAR_ZERO = 0.1  # of the largest singular value: the first of the ten bins of the authors' figure
Layers = dict[str, list[float]]


def main(argv: list[str]) -> int:
    """Writes ``contranorm_layers.png`` and ``.csv``."""
    parser = figure_parser(__doc__)
    options = parser.parse_args(argv)
    out = options.target / "figures/contranorm_layers"
    berts = [by_layer(bert(seed)) for seed in SEEDS]
    found = {"DeiT-Ti, pretrained": [by_layer(deit())], "small BERT, 12 layers": berts}
    rows = [row for name, seeds in found.items() for row in layer_rows(name, seeds)]
    print(*save(draw_curves(rows), out, options.pdf), write_rows(rows, out), sep="\n")
    return 0


def deit() -> Subject:
    """The pretrained DeiT-Ti and validation images, prepared as for its accuracy.

    Raises:
        InputError: weights or images are missing.
    """
    config = compose_config(DEIT)
    data, evaluation = build(config.data), build(config.task).evaluation
    ids = evenly_spaced(data.val, SAMPLES)
    images = (to_float(evaluation.prepared(data.pil_image(id)))[None] for id in ids)
    vit = trained.untrained(config, ())
    return Subject(vit.eval(), images, f"{len(ids)} images")


def bert(seed: int) -> Subject:
    """A trained BERT and validation sentences.

    Raises:
        InputError: it has not been trained; the message holds the command.
    """
    return of_run(str(trained.of_command(BERT, seed)), seed, SAMPLES, batch=1, on="cpu")


@torch.no_grad()
def by_layer(subject: Subject) -> Layers:
    """Returns means over samples by layer. CLS is left out, also that of a BERT."""
    model: Any = subject.model
    prefix, (first, second) = getattr(model, "prefix", 0), tee(_calls(subject))
    report = diagnose(model, batches=first, prefix=prefix, metrics=MEASURES)
    low = [[near_zero(x[:, prefix:]) for x in model.layers(*inputs)] for inputs in second]
    shares = [torch.cat(layer).mean().item() for layer in zip(*low, strict=True)]
    return {name: report[name] for name in MEASURES} | {"near_zero": shares}


def _calls(subject: Subject) -> Iterator[tuple[Tensor, ...]]:
    """Yields the arguments of every call of the model."""
    for batch in subject.batches:
        yield batch if isinstance(batch, tuple) else (batch,)


def near_zero(x: Tensor) -> Tensor:
    """Computes the share of singular values below ``NEAR_ZERO`` of the largest.

    Shapes: x (..., N, C) -> (...); NaN for a matrix with a non-finite entry.
    """
    sigma = singular_values(x, exact=True)
    return (sigma < NEAR_ZERO * sigma[..., :1]).double().mean(dim=-1) + 0 * sigma[..., 0]


def layer_rows(name: str, seeds: list[Layers]) -> list[dict[str, Any]]:
    """Returns mean, std (ddof = 1), number and values of seeds for each measure and layer."""
    return [
        {"row": name, "column": "", "metric": metric, "block": layer}
        | mean_and_std(values)
        | {"values": values}
        for metric in seeds[0]
        for layer, values in enumerate(zip(*(seed[metric] for seed in seeds), strict=True), 1)
    ]
