"""Laws of the diagnosis: padding, batches and graphs do not change a sample's numbers."""

from typing import Any

import pytest
import timm
import torch
import torch_geometric.data as pyg_data
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.metrics import smoothness

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "vocab_size": 20}
CYCLE = torch.tensor([[0, 1, 1, 2, 2, 0, 3, 4], [1, 0, 2, 1, 0, 2, 4, 3]])  # and node 5 is alone


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def equal(one: osm.Report, other: osm.Report, tolerance: float = 1e-5) -> None:
    assert one.layers == other.layers and one.values.keys() == other.values.keys()
    for metric in one.values:
        assert one[metric] == pytest.approx(other[metric], rel=tolerance, abs=tolerance), metric


def bert() -> hf.PreTrainedModel:
    torch.manual_seed(0)
    model = hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=32, initializer_range=0.5))
    return model.eval()


def encoder(batch_first: bool) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


class Repeat(nn.Module):
    """Layers that make all tokens equal."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x[:, :1].expand_as(x))
        return x


def test_equal_tokens_have_cosine_share_and_rank_one() -> None:
    report = osm.diagnose(Repeat(), draw(3, 5, 8))
    for metric in ("cosine", "mean_share", "effective_rank"):
        assert report[metric] == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side: str) -> None:
    """Single sentences without padding equal a padded batch."""
    model, lengths = bert(), (3, 7, 5)
    sentences = [torch.randint(1, 20, (n,)) for n in lengths]
    alone = [{"input_ids": s[None]} for s in sentences]
    pad = [(7 - n, 0) if side == "left" else (0, 7 - n) for n in lengths]
    ids = torch.stack([nn.functional.pad(s, p) for s, p in zip(sentences, pad)])
    mask = torch.stack([nn.functional.pad(torch.ones(n), p) for n, p in zip(lengths, pad)]).long()
    places = (mask.cumsum(1) - 1).clamp(min=0)  # positions do not count the padding on the left
    padded = osm.diagnose(model, input_ids=ids, attention_mask=mask, position_ids=places)
    equal(osm.diagnose(model, batches=alone), padded)
    assert padded.tokens == (3, 7) and padded.samples == 3 and "padding" in padded.notes[0]
    own = osm.diagnose(model, input_ids=ids, position_ids=places, mask=mask.bool())
    assert own["cosine"] != pytest.approx(padded["cosine"])  # attends to padding, but measures none


def test_torch_encoder_with_either_layout_and_padding() -> None:
    x, padding = draw(2, 6, 16), torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    first, last = encoder(True), encoder(False)
    expected = osm.diagnose(first, x, src_key_padding_mask=padding)
    equal(expected, osm.diagnose(last, x.transpose(0, 1), src_key_padding_mask=padding))
    equal(expected, osm.diagnose(first, batches=[x[:1, :4], x[1:]]))
    assert len(expected["attention_similarity"]) == 3


def test_batches_equal_one_large_batch() -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2)
    images = draw(40, 3, 32, 32)  # more than are measured at a time
    large = osm.diagnose(model, images)
    equal(large, osm.diagnose(model, batches=images.split(7)))
    assert large.counts["cosine"] == [40, 40] and large.tokens == (16, 16)


def gcn() -> nn.Module:
    torch.manual_seed(0)
    return pyg.GCN(4, 8, 3).eval()


def test_a_batch_without_pairs_of_tokens_changes_nothing() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(2, 5, 8)
    both = osm.diagnose(model, batches=[x, x[:, :1]])
    assert both.values == osm.diagnose(model, x).values and both.counts["cosine"] == [2, 2]


def test_a_batch_of_graphs_equals_graph_by_graph() -> None:
    graphs = [
        pyg_data.Data(x=draw(6, 4, seed=1), edge_index=CYCLE),
        pyg_data.Data(x=draw(3, 4, seed=2), edge_index=CYCLE[:, :6]),
    ]
    model, batch = gcn(), pyg_data.Batch.from_data_list(graphs)
    expected = osm.diagnose(model, batches=graphs)
    assert "mad" in expected.values and "1 node without neighbours" in expected.notes[0]
    equal(expected, osm.diagnose(model, batch))
    equal(expected, osm.diagnose(model, batch.x, batch.edge_index, batch=batch.batch))
    order = torch.tensor([8, 0, 3, 6, 1, 2, 7, 4, 5])  # a batch vector need not be sorted
    edges = order.argsort()[batch.edge_index]
    shuffled = osm.diagnose(model, batch.x[order], edges, batch=batch.batch[order])
    equal(expected, shuffled)


class OfBatch(nn.Module):
    """Takes a whole Batch, whose parameter has the name of one of its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = gcn()

    def forward(self, batch: pyg_data.Batch) -> Tensor:
        return self.gnn(batch.x, batch.edge_index)


def test_graphs_can_come_as_one_object_and_edges_as_a_matrix() -> None:
    torch.manual_seed(0)
    data = [pyg_data.Data(x=draw(n, 4, seed=n), edge_index=CYCLE[:, : 2 * n]) for n in (6, 3)]
    batch, model = pyg_data.Batch.from_data_list(data), OfBatch()
    found = osm.diagnose(model, batch)
    expected = osm.diagnose(model.gnn, batch.x, batch.edge_index, batch=batch.batch)
    assert list(found.values.values()) == list(expected.values.values())
    matrix = torch.sparse_coo_tensor(CYCLE.flip(0), torch.ones(CYCLE.shape[1]), (6, 6))
    x = draw(6, 4)
    equal(osm.diagnose(model.gnn, x, matrix), osm.diagnose(model.gnn, x, CYCLE))


def test_a_graph_of_one_node_and_tokens_of_zeros_have_a_note() -> None:
    batch, edges = torch.tensor([0, 0, 1]), torch.tensor([[0, 1], [1, 0]])
    report = osm.diagnose(gcn(), draw(3, 4), edges, batch=batch)
    assert report.notes == ("Left out: 1 graph of one node.",)
    zero = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    report = osm.diagnose(zero, torch.zeros(2, 5, 4))
    assert report["cosine"] == [0.0, pytest.approx(1.0)]
    assert report.notes[0].startswith("All tokens are 0 in 2 of the samples after 0: equal")


def test_several_features_of_one_graph() -> None:
    model, x = gcn(), draw(2, 6, 4)
    expected = osm.diagnose(model, batches=[(features, CYCLE) for features in x])
    equal(expected, osm.diagnose(model, x, CYCLE))


def test_isolated_nodes_count_but_for_mad() -> None:
    model, x = gcn(), draw(6, 4)
    report = osm.diagnose(model, x, CYCLE, layers="convs.0")
    hidden = model.convs[0](x, CYCLE)
    assert report["cosine"] == pytest.approx([smoothness.mean_cosine(hidden).item()])
    connected = smoothness.mean_average_distance(hidden[:5], CYCLE).item()
    assert report["mad"] == pytest.approx([connected])


def test_equal_models_in_half_precision_and_under_autocast() -> None:
    model, ids = bert(), torch.randint(1, 20, (3, 6))
    expected = osm.diagnose(model, input_ids=ids)
    with torch.autocast("cpu", torch.bfloat16):
        equal(expected, osm.diagnose(model, input_ids=ids), 0.1)
    equal(expected, osm.diagnose(model.bfloat16(), input_ids=ids), 0.1)


def test_torchs_attention_under_autocast() -> None:
    torch.manual_seed(0)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2)
    model, x = nn.Sequential(nn.Linear(8, 8), layers), torch.randn(3, 5, 8)
    expected = osm.diagnose(model, x, layers="1.layers.*")
    with torch.autocast("cpu", torch.bfloat16):
        equal(expected, osm.diagnose(model, x, layers="1.layers.*"), 0.1)


def test_edges_in_one_direction_and_twice_are_noted() -> None:
    model, x = gcn(), draw(5, 4)
    half = CYCLE[:, CYCLE[0] < CYCLE[1]]
    both = osm.diagnose(model, x, torch.cat([half, half.flip(0)], 1))
    once, twice = osm.diagnose(model, x, half), osm.diagnose(model, x, CYCLE.repeat(1, 2))
    assert not any("Edges" in note for note in both.notes)
    E = half.shape[1]
    assert any(f"Edges: {E} lack their reverse and 0 are" in note for note in once.notes)
    assert any(f"Edges: 0 lack their reverse and {2 * E} are" in note for note in twice.notes)


def test_a_layer_with_fewer_channels_or_tokens_is_noted() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)), draw(1, 6, 4)
    (note,) = osm.diagnose(model, x, layers=["0", "1", "2"]).notes
    assert "6 from 0 on, 2 from 2 on" in note
    assert not osm.diagnose(model, x, layers=["0", "1"]).notes


def test_weights_of_edges_are_noted() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    model, x, weights = pyg.GCN(5, 8, 2), torch.randn(3, 5), torch.rand(4)

    def notes(*args: Tensor, **options: Any) -> tuple[str, ...]:
        return osm.diagnose(model, x, *args, **options).notes

    assert not notes(edges) and not notes(edges, edge_weight=torch.ones(4))
    [weighted] = notes(edges, edge_weight=weights)
    assert weighted in notes(torch.sparse_coo_tensor(edges, weights, (3, 3)))
    assert not notes(edges, edge_weight=weights, metrics=["cosine"])


class Cloud(nn.Module):
    """A model of points without edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.layers[1](self.layers[0](x).relu())


def test_clouds_of_points_are_samples_without_edges() -> None:
    torch.manual_seed(0)
    model, x = Cloud(), torch.randn(9, 3)
    batch = torch.tensor([1, 0, 0, 1, 2, 2, 2, 2, 0])
    report = osm.diagnose(model, x, batch)
    assert report.samples == 3 and report.tokens == (2, 4)
    alone = osm.diagnose(model, batches=[x[batch == i] for i in range(3)], layout="NC")
    assert report["cosine"] == pytest.approx(alone["cosine"])
    tokens = osm.diagnose(model, torch.randn(2, 5, 3), torch.tensor([0, 1]))  # such as labels
    assert tokens.unit == "tokens" and tokens.tokens == (5, 5)


X, NODES, IMAGES = torch.randn(2, 5, 8), torch.randn(4, 8), torch.rand(2, 3, 32, 32)
EDGES = torch.tensor([[0, 1], [1, 0]])


class Blocks(nn.Module):
    """Linear layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1](self.blocks[0](x))


class OfArgument(Blocks):
    def forward(self, batch: Any) -> Tensor:
        return super().forward(batch["x"] if isinstance(batch, dict) else batch)


def vit() -> nn.Module:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", depth=2, **sizes)


def test_functions_of_tokens_are_metrics() -> None:
    def first(x: Tensor) -> Tensor:
        return x[:, 0, 0].float()

    model = Blocks()
    report = osm.diagnose(model, X, metrics=[first, "norm", osm.metrics.token_variance])
    assert list(report.values) == ["norm", "first", "token_variance"] and "first" in str(report)
    out = model(X)
    assert report["first"][1] == pytest.approx(out[:, 0, 0].mean().item())
    expected = osm.metrics.token_variance(out)
    assert report["token_variance"][1] == pytest.approx(expected.mean().item())
    assert report.std["token_variance"][1] == pytest.approx(expected.std(correction=0).item())
    assert osm.diagnose(model, X, metrics=first).values == {"first": report["first"]}


def test_a_batch_that_is_the_argument_of_the_model() -> None:
    model = OfArgument()
    expected = osm.diagnose(model, X).values
    assert osm.diagnose(model, batch=X).values == expected
    assert osm.diagnose(model, batch={"x": X}).values == expected
    assert osm.diagnose(model, {"x": X}).values == expected


def test_a_model_that_accelerate_offloads() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = vit()
    expected = osm.diagnose(model, IMAGES)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert osm.diagnose(model, IMAGES).values == expected.values
    assert all(parameter.is_meta for parameter in model.parameters())


def test_errors_of_a_model_with_usual_inputs_are_its_own() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        osm.diagnose(Blocks(), X[..., :7])


def test_misspelt_options_are_refused() -> None:
    class Open(Blocks):
        def forward(self, x: Tensor, **_: Any) -> Tensor:
            return super().forward(x)

    assert osm.diagnose(Open(), X, output_attentions=False)
    for model, name, close in (
        (Open(), "metric", "metrics"),
        (Open(), "refrence", "reference"),
        (Blocks(), "layer", "layers"),
    ):
        with pytest.raises(osm.InputError, match=f"^{name}: .*'{close}'"):
            osm.diagnose(model, X, **{name: None})


class Masked(Blocks):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


def test_an_option_that_is_an_argument_of_the_model_too_is_named() -> None:
    mask = torch.ones(2, 5, dtype=torch.bool)
    note = "Not passed to Masked: mask; give the model's own by its position."
    assert note in osm.diagnose(Masked(), X, mask=mask).notes
    assert note not in osm.diagnose(Masked(), X, mask, mask=mask).notes
