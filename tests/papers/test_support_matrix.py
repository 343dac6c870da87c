"""Every aggregator × every backbone: they work together, or one line says why not."""

from dataclasses import replace

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.papers.support_matrix import (
    COLUMNS,
    aggregators,
    assemble,
    measure,
    on_a_graph,
    on_images,
    on_sentences,
)

SMALL = {  # the same classes, smaller
    "gcn": (on_a_graph(310), {"hidden": 8}),
    "deit_ti": (on_images(64), {"name": "test_vit", "weights": "none"}),
    "t2t_vit_7": (on_images(64), {}),
    "resnet18": (on_images(49), {"weights": "none", "output_stride": 16, "dim": 16}),
    "mobilenetv2": (on_images(49), {"weights": "none", "output_stride": 16, "dim": 16}),
    "bert_small": (on_sentences(12), {"dim": 16, "heads": 2, "ffn": 16, "vocabulary": 50}),
}
INSIDE = ("none", "attn_scale", "centered", "gated_attention", "re_attention", "shaped_attention")
INSTEAD = ("em", "em_gradient", "hem", "external", "external_multihead", "self_attention")
OF_ATTENTION = ("gated_attention", "re_attention")
REFUSED = {("gcn", name) for name in (*INSTEAD, *OF_ATTENTION)}  # a graph is its mixing
CNNS = ("resnet18", "mobilenetv2")  # without a mixing to act inside
REFUSED |= {(host, name) for host in CNNS for name in INSIDE if name != "none"}


@pytest.mark.parametrize("name", aggregators())
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.backbone)
def test_a_pair_works_or_is_refused_in_a_line(column, name: str) -> None:
    if column.backbone == "bert_small":
        pytest.importorskip("transformers")
    trial, overrides = SMALL[column.backbone]
    small = replace(column, trial=trial, overrides={**column.overrides, **overrides})
    few = {"num_bases": 4} if "em" in name.split("_") or name == "hem" else {}
    if (column.backbone, name) in REFUSED:
        with pytest.raises(InputError, match="offers only: .*choose an aggregator"):
            assemble(small, name, **few)
        return
    network, forward = assemble(small, name, **few)
    with torch.no_grad():
        for parameter in network.parameters():  # some start at 0 and hide others
            parameter.add_(0.02 * torch.randn_like(parameter))
    out = forward()
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * weights).sum().backward()
    assert out.isfinite().all()
    without = [
        key for key, p in network.named_parameters() if p.requires_grad and not _reached(p.grad)
    ]
    assert not without, f"trained, but no gradient reaches {without}"


def _reached(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and bool(gradient.isfinite().all()) and bool(gradient.any())


def test_flops_of_sparse_products_and_of_pairs_of_nodes_are_counted() -> None:
    gcn, N, F, C, K = COLUMNS[0], 1000, 100, 32, 5
    network, _ = assemble(gcn, "none")
    entries = network.adjacency.edges.shape[1]
    plain, pairs = (measure(gcn, name, rounds=0)["flops"] for name in ("none", "contranorm"))
    assert plain == 2 * N * C * (F + K) + 2 * entries * (C + K)
    assert pairs == plain + N**2 * (C + 2 * C)  # one layer is hidden; exponents are symmetric


GRAPHS = (
    "GCNII",
    "JKNet",
    "GPRGNN",
    "DAGNN",
    "GraphCON",
    "G2",
    "Networks",
)  # with the sites of GCN


def test_no_backbone_is_forgotten() -> None:
    """One column a class that hosts aggregators; the transformer of random weights trains none."""
    from hydra.utils import get_object

    from oversmoothing.lab.launch.config import CONFIGS, compose_config

    def classes(names: list[str]) -> set[type]:
        nodes = [compose_config([f"backbone={name}"]).backbone for name in names]
        return {get_object(node._target_) for node in nodes}

    every = classes([path.stem for path in (CONFIGS / "backbone").glob("[!_]*.yaml")])
    here = classes([column.backbone for column in COLUMNS])
    assert {c.__name__ for c in every - here} <= {"RandomTransformer", "ALBERT", *GRAPHS}
