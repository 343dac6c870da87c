"""Every aggregator × every backbone: they work together, or one line says why not."""

from collections.abc import Callable

import pytest
import torch
from hydra.utils import get_object
from torch import Tensor, nn

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.launch.config import CONFIGS, compose_config

Trial = tuple[nn.Module, Callable[[], Tensor]]  # a network and a forward pass
MakeTrial = Callable[[Callable[..., nn.Module], list], Trial]  # of backbone and aggregators


def on_images(side: int) -> MakeTrial:
    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        images = torch.rand(2, 3, side, side)
        return network, lambda: network(images)[0]

    return trial


def on_a_graph(nodes: int) -> MakeTrial:
    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        graph = generate(num_nodes=nodes)
        own = {"x": graph.x, "edges": graph.edges, "num_classes": 5, "seeds": [0]}
        network = backbone(aggregators=aggregators, **own)
        return network, network

    return trial


def on_sentences(length: int) -> MakeTrial:
    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        tokens = torch.randint(network.vocabulary, (4, length))
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[0, 3 * length // 4 :] = False
        return network, lambda: network(tokens, mask, torch.zeros_like(tokens))

    return trial


CNN = {"weights": "none", "output_stride": 16, "dim": 16}  # test_cnn.py has ResNets
COLUMNS = {  # backbone -> trial and overrides
    "gcn": (on_a_graph(310), {"hidden": 8}),
    "deit_ti": (on_images(64), {"name": "test_vit", "weights": "none"}),
    "t2t_vit_7": (on_images(64), {}),
    "mobilenetv2": (on_images(49), CNN),
    "bert_small": (on_sentences(12), {"dim": 16, "heads": 2, "ffn": 16, "vocabulary": 50}),
}
AGGREGATORS = sorted(path.stem for path in (CONFIGS / "aggregator").glob("*.yaml"))
INSIDE = ("none", "attn_scale", "centered", "gated_attention", "re_attention", "shaped_attention")
INSTEAD = ("em", "em_gradient", "hem", "external", "external_multihead", "self_attention")
OF_ATTENTION = ("gated_attention", "re_attention")
OF_VALUES = ("neutreno", "value_residual")  # of the first layer, which only transformers here keep
REFUSED = {("gcn", name) for name in (*INSTEAD, *OF_ATTENTION)}  # a graph is its mixing
REFUSED |= {(host, name) for host in COLUMNS if "it_" not in host for name in OF_VALUES}
REFUSED |= {("mobilenetv2", name) for name in INSIDE if name != "none"}  # it has no mixing


def assembled(backbone: str, aggregator: str, **options: int) -> Trial:
    trial, overrides = COLUMNS[backbone]
    network = compose_config([f"backbone={backbone}"]).backbone  # Hydra composes each choice once
    method = compose_config([f"aggregator={aggregator}"]).aggregator
    network.update(overrides)
    method.update(options)
    torch.manual_seed(0)
    return trial(build(network), [build(method), NoAggregator])


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("backbone", COLUMNS)
def test_a_pair_works_or_is_refused_in_a_line(backbone: str, name: str) -> None:
    if backbone == "bert_small":
        pytest.importorskip("transformers")
    few = {"num_bases": 4} if "em" in name.split("_") or name == "hem" else {}
    if (backbone, name) in REFUSED:
        way = "oversmoothing.apply" if name in OF_VALUES else "offers only: .*choose an aggregator"
        with pytest.raises(InputError, match=way):
            assembled(backbone, name, **few)
        return
    network, forward = assembled(backbone, name, **few)
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

    def classes(names: list[str]) -> set[type]:
        nodes = [compose_config([f"backbone={name}"]).backbone for name in names]
        return {get_object(node._target_) for node in nodes}

    every = classes([path.stem for path in (CONFIGS / "backbone").glob("[!_]*.yaml")])
    here = classes([*COLUMNS])
    assert {c.__name__ for c in every - here} <= {
        "RandomTransformer",
        "ALBERT",
        "PreNormBERT",
        *GRAPHS,
    }
