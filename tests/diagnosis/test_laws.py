"""Laws of the diagnosis: padding, batches and graphs do not change a sample's numbers."""

from typing import Any

import pytest
import torch
import torch_geometric.data as pyg_data
import transformers as hf
from diagnosed import CYCLE, Blocks, bert, captured, draw, encoder, equal, gcn, vit
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import oversmoothing as osm

X, NODES = draw(2, 5, 8), draw(6, 4)


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


class OwnLayer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=key_padding_mask)


class Own(nn.Module):
    """A model whose masks have the name that they have at torch's attention."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(OwnLayer, layers))

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, key_padding_mask)
        return x


def test_torch_encoder_with_either_layout_and_padding() -> None:
    x, padding = draw(2, 6, 16), torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    first, last = encoder(True), encoder(False)
    expected = osm.diagnose(first, x, src_key_padding_mask=padding)
    equal(expected, osm.diagnose(last, x.transpose(0, 1), src_key_padding_mask=padding))
    own = Own(first.layers)
    equal(expected, osm.diagnose(own, x, key_padding_mask=padding))
    attends = osm.diagnose(own, x, key_padding_mask=padding, layers="layers.*.layer.self_attn")
    assert attends.tokens == (4, 6)
    equal(expected, osm.diagnose(first, batches=[x[:1, :4], x[1:]]))
    assert len(expected["attention_similarity"]) == 3


def test_batches_equal_one_large_batch() -> None:
    model, images = vit(), draw(40, 3, 32, 32)  # more than are measured at a time
    large = osm.diagnose(model, images)
    equal(large, osm.diagnose(model, batches=images.split(7)))
    assert large.counts["cosine"] == [40, 40] and large.tokens == (16, 16)
    both = osm.diagnose(Blocks(), batches=[X, X[:, :1]])  # the second has no pairs of tokens
    assert both.counts["cosine"] == [2, 2]


def test_half_precision_and_autocast_change_little() -> None:
    """Under autocast, torch's attention gets halves and weights in float32."""
    of_torch = nn.Sequential(nn.Linear(16, 16), encoder())
    for model, x in ((bert(), torch.randint(1, 20, (3, 6))), (of_torch, draw(3, 6, 16))):
        layers = "1.layers.*" if model is of_torch else None
        expected = osm.diagnose(model, x, layers=layers)
        with torch.autocast("cpu", torch.bfloat16):
            equal(expected, osm.diagnose(model, x, layers=layers), 0.1)
        half = x.bfloat16() if x.is_floating_point() else x
        equal(expected, osm.diagnose(model.bfloat16(), half, layers=layers), 0.1)


def test_labels_give_the_distances_of_classes_for_nodes_and_tokens() -> None:
    """A node with a negative label, padding and leading tokens have no class."""
    model, labels, ratio = gcn(), torch.tensor([0, 1, 0, -1, 1]), osm.metrics.group_distance_ratio
    report = osm.diagnose(model, NODES[:5], CYCLE, labels=labels)
    hidden = [*captured(model, report.layers, NODES[:5], CYCLE)]
    expected = [ratio(h, labels).item() for h in hidden]
    assert report["group_distance_ratio"] == pytest.approx(expected, rel=1e-5)
    assert "group_distance_ratio ↓" in str(report)
    gap = osm.diagnose(model, NODES[:5], CYCLE, metrics="mad_gap")["mad_gap"]
    assert gap == pytest.approx([osm.metrics.mad_gap(h, CYCLE).item() for h in hidden], rel=1e-5)
    graphs = [pyg_data.Data(x=draw(n, 4, seed=n), edge_index=CYCLE) for n in (5, 6)]
    every = torch.cat([labels, labels, labels[:1]])
    found = osm.diagnose(model, pyg_data.Batch.from_data_list(graphs), labels=every)
    alone = [osm.diagnose(model, g, labels=every[:n] if n == 5 else every[5:])
             for n, g in zip((5, 6), graphs)]  # fmt: skip
    pairs = zip(*(one["group_distance_ratio"] for one in alone))
    assert found["group_distance_ratio"] == pytest.approx([sum(pair) / 2 for pair in pairs])

    of_tokens, mask = torch.tensor([[0, 0, 1, 1, 0]] * 2), torch.ones(2, 5).bool()
    mask[1, 4] = False
    blocks = Blocks()
    report = osm.diagnose(blocks, X, labels=of_tokens, mask=mask, prefix=1)
    hidden = blocks.blocks[0](X)
    expected = [ratio(hidden[0, 1:], of_tokens[0, 1:]), ratio(hidden[1, 1:4], of_tokens[1, 1:4])]
    assert report["group_distance_ratio"][0] == pytest.approx(sum(expected).item() / 2, rel=1e-5)


def test_labels_of_a_model_go_to_it() -> None:
    class OfLabels(Blocks):
        def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
            assert labels is not None
            return super().forward(x)

    labels = torch.arange(10).view(2, 5) % 2
    assert "group_distance_ratio" not in osm.diagnose(OfLabels(), X, labels=labels).values
    model = OfLabels()
    found = osm.diagnose(model, X, labels=labels, metrics="group_distance_ratio")
    expected = osm.metrics.group_distance_ratio(model.blocks[0](X)[0], labels[0])
    other = osm.metrics.group_distance_ratio(model.blocks[0](X)[1], labels[1])
    assert found["group_distance_ratio"][0] == pytest.approx((expected + other).item() / 2)


def test_zeros_and_layers_with_fewer_channels_are_noted() -> None:
    zero = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    report = osm.diagnose(zero, torch.zeros(2, 5, 4))
    assert report["cosine"] == [0.0, pytest.approx(1.0)]
    assert report.summary().startswith("After 0, all tokens are 0:")
    half = osm.diagnose(zero, torch.stack([torch.zeros(5, 4), draw(5, 4)]))
    assert half.summary().startswith("After 0, all tokens are 0 in 1 of 2 samples:")
    gone = nn.Sequential(nn.Linear(4, 4), *(nn.Linear(4, 4, bias=False) for _ in "12"))
    gone[1].weight.data.zero_()
    text = osm.diagnose(gone, draw(2, 5, 4)).summary()
    assert text.startswith("From 1 on, all tokens are 0:") and "rank" not in text.split(". ", 1)[1:]
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)), draw(1, 6, 4)
    (note,) = osm.diagnose(model, x, layers=["0", "1", "2"]).notes
    assert "6 from 0 on, 2 from 2 on" in note
    assert not osm.diagnose(model, x, layers=["0", "1"]).notes


def test_functions_of_tokens_are_metrics() -> None:
    def first(x: Tensor) -> Tensor:
        return x[:, 0, 0].float()

    model = Blocks()
    report = osm.diagnose(model, X, metrics=[first, "norm", osm.metrics.token_variance])
    assert list(report.values) == ["norm", "token_variance", "first"] and "first" in str(report)
    out = model.blocks[1](X)
    assert report["first"][1] == pytest.approx(out[:, 0, 0].mean().item())
    expected = osm.metrics.token_variance(out)
    assert report["token_variance"][1] == pytest.approx(expected.mean().item())
    assert report.std["token_variance"][1] == pytest.approx(expected.std(correction=0).item())
    assert osm.diagnose(model, X, metrics=first).values == {"first": report["first"]}
    single = osm.diagnose(model, X, metrics=lambda x: float(x[0, 0, 0]))
    assert single["<lambda>"] == pytest.approx(report["first"])  # a number for one sample at a time
    whole = osm.diagnose(model, X, metrics=[len, lambda x: int(x.zero_().size(1)), "norm"])
    assert whole.values == {"norm": report["norm"], "len": [1, 1], "<lambda>": [5, 5]}


def test_what_is_not_defined_is_noted() -> None:
    """A dash in the table is never without a reason."""
    of_one = osm.diagnose(Blocks(), X, metrics=lambda x: x[:, 0, 0] / torch.tensor([1, 0]))
    assert of_one.notes == ("<lambda>: not defined in 1 of 2 samples after blocks.0.",)
    zeros = osm.diagnose(Blocks(lambda x: 0 * x), X, metrics=["norm", "mean_share"])
    assert zeros.notes == ("mean_share: not defined in 2 of 2 samples after blocks.0.",)


def test_an_option_that_is_an_argument_of_the_model_as_well() -> None:
    class OfArgument(Blocks):
        def forward(self, batch: Any, mask: Tensor | None = None) -> Tensor:
            return super().forward(batch["x"] if isinstance(batch, dict) else batch)

    model, mask = OfArgument(), torch.ones(2, 5, dtype=torch.bool)
    expected = osm.diagnose(model, X).values
    assert osm.diagnose(model, batch=X).values == expected
    assert osm.diagnose(model, batch={"x": X}).values == expected
    assert osm.diagnose(model, {"x": X}).values == expected
    note = "Not passed to OfArgument: mask; give the model's own by its position."
    assert note in osm.diagnose(model, X, mask=mask).notes
    assert note not in osm.diagnose(model, X, mask, mask=mask).notes


def test_a_model_that_accelerate_offloads() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, images = vit(), torch.rand(2, 3, 32, 32)
    expected = osm.diagnose(model, images)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert osm.diagnose(model, images).values == expected.values
    assert all(parameter.is_meta for parameter in model.parameters())


def test_errors_of_a_model_with_usual_inputs_are_its_own() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        osm.diagnose(Blocks(), X[..., :7])


def test_gradients_are_those_of_autograd_and_none_is_left() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), draw(3, 5, 8)
    model[0].requires_grad_(False)  # the first layer has no gradient of its own

    def loss(out: Tensor) -> Tensor:
        return out.square().mean()

    with torch.inference_mode():
        report = osm.diagnose(model, x.clone(), loss=loss, layers=["0", "2"])
    hidden = model[0](x).requires_grad_()
    out = model[2](hidden.tanh())
    for i, g in enumerate(torch.autograd.grad(loss(out), (hidden, out))):
        for name in ("norm", "cosine", "effective_rank"):
            expected = getattr(osm.metrics, name)(g).mean().item()
            assert report[f"gradient_{name}"][i] == pytest.approx(expected, rel=1e-5)
    assert all(p.grad is None for p in model.parameters())
    assert report["cosine"] == osm.diagnose(model, x, layers=["0", "2"])["cosine"]
    model.requires_grad_(True)  # so that autograd saves the input, also one of inference mode
    with torch.inference_mode():
        of_inference = x.clone()
    again = osm.diagnose(model, of_inference, loss=loss, layers=["0", "2"])
    assert again.values == report.values
    for wrong in ({"loss": lambda out: out}, {"loss": 3}):
        with pytest.raises(osm.InputError, match="^loss: "):
            osm.diagnose(model, x, layers=["0", "2"], **wrong)
    with pytest.raises(osm.InputError, match="^metrics: .*loss="):
        osm.diagnose(model, x, metrics=["gradient_norm"])


class Checkpointed(nn.Module):
    """Blocks that gradient checkpointing calls again, in any mode."""

    def __init__(self) -> None:
        super().__init__()
        self.reentrant: bool | None = None
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            how = {"use_reentrant": self.reentrant}
            x = block(x) if self.reentrant is None else checkpoint(block, x, **how)
        return x


def test_layers_that_checkpointing_calls_again_count_once() -> None:
    model, x = Checkpointed(), X.clone().requires_grad_()
    options: Any = {"layers": "blocks.*.0", "loss": lambda out: out.square().sum()}
    expected = osm.diagnose(model, x, **options)
    model.reentrant = False
    report = osm.diagnose(model, x, **options)
    assert report.layers == expected.layers and report.values == expected.values
    model.reentrant = True
    for layers in (
        "blocks.*.0",
        "blocks.*",
    ):  # inside the checkpoints, where no gradient is, and at them
        with pytest.raises(osm.InputError, match="^loss: "):
            osm.diagnose(model, x, **options | {"layers": layers})


def test_maps_of_two_layers_are_compared() -> None:
    model, images = vit(depth=3, num_heads=3), torch.rand(2, 3, 32, 32)
    for block in model.blocks:
        block.attn.qkv.weight.data.mul_(20)
    report, maps = osm.diagnose(model, images), []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, __, A: maps.append(A))
    assert report["attention_cosine"][0] is None and len(report.attention_matrix) == 3
    model.eval()(images)
    rows = torch.linspace(0, 16, 16).round().long()
    expected = osm.metrics.attention_cosine(maps[1][:1, :, rows], maps[2][:1, :, rows]).item()
    assert report["attention_cosine"][2] == pytest.approx(expected, abs=1e-5)
    assert report.attention_matrix[1][2] == pytest.approx(expected, abs=1e-5)
    gap = osm.diagnose(model, images, metrics="attention_gap")["attention_gap"]
    assert gap[1] == pytest.approx(osm.metrics.attention_gap(maps[1]).mean().item(), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_maps_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    model, images = vit(depth=2), torch.rand(2, 3, 32, 32).to(dtype)
    for block in model.to(dtype).blocks:
        block.attn.fused_attn = False
        block.attn.qkv.weight.data.mul_(60)  # entries of 0 in float16
    maps: list[Tensor] = []
    hooks = [b.attn.attn_drop.register_forward_hook(lambda *of: maps.append(of[-1]))
             for b in model.blocks]  # fmt: skip
    model.eval()(images)
    for hook in hooks:
        hook.remove()
    report = osm.diagnose(model, images)
    for name in ("attention_similarity", "attention_entropy", "attention_sink"):
        expected = [getattr(osm.metrics, name)(A).mean().item() for A in maps]
        assert report[name] == pytest.approx(expected, abs=1e-5), name


def test_a_sink_that_has_a_column_of_its_own_is_left_out() -> None:
    class Sink(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = (x @ x.mT)[:, None]
            A = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1]
            return (A @ x[:, None])[:, 0]

    report = osm.diagnose(Blocks(build=Sink), X, layers="blocks.*")
    A = torch.cat([X @ X.mT, torch.zeros(2, 5, 1)], -1).softmax(-1)[..., :-1]
    expected = osm.metrics.attention_sink(A[:, None]).mean().item()
    assert report["attention_sink"][0] == pytest.approx(expected)


def test_names_are_those_of_the_functions() -> None:
    from oversmoothing.diagnosis.measures import MEASURES

    named = {name.removeprefix("gradient_") for name in MEASURES}
    assert named <= {*osm.metrics.__all__}


def test_every_measure_by_name_is_that_of_its_function() -> None:
    from oversmoothing.diagnosis.measures import OF_SAMPLES, OF_TOKENS

    model, x = Blocks(), draw(4, 6, 8)
    found = osm.diagnose(model, x, metrics=[*OF_TOKENS, *OF_SAMPLES])
    hidden = model.blocks[1](x)
    for name in found.values:
        expected = getattr(osm.metrics, name)(hidden).mean().item()
        assert found[name][1] == pytest.approx(expected, rel=1e-5), name
    by_function = osm.diagnose(model, x, metrics=[getattr(osm.metrics, m) for m in found.values])
    assert by_function.values == found.values


GIVEN = ["positions", "bounds", "ids", "sequences", "own bounds", "padded", "own padded"]


@pytest.mark.parametrize("given", GIVEN)
def test_packed_sequences_equal_single_ones(given: str) -> None:
    """Tokens and attention maps are measured within the sequences; padding counts nowhere."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 20}
    sizes |= {"intermediate_size": 8, "num_key_value_heads": 1, "pad_token_id": None}
    model = hf.LlamaModel(hf.LlamaConfig(**sizes)).eval()
    lengths, options = [3, 4, 1], {}  # the last one has too few tokens
    ids = torch.randint(1, 20, (1, sum(lengths)))
    inputs: dict[str, Any] = {"input_ids": ids, "use_cache": False}
    places = torch.cat([torch.arange(n) for n in lengths])[None]
    inputs["position_ids"] = places
    sequences = torch.arange(3).repeat_interleave(torch.tensor(lengths))
    padded = "padded" in given  # no bound after the last token
    bounds = torch.tensor([0, 3, 7, 8][: 3 if padded else 4], dtype=torch.int32)
    if given in ("bounds", "padded"):
        inputs |= {"cu_seq_lens_q": bounds}
    elif given != "positions":
        options["segments"] = {"ids": sequences, "sequences": sequences[None]}.get(given, bounds)
        same = sequences[:, None] == sequences
        mask = torch.zeros(8, 8).masked_fill(~same.tril(), -torch.inf)
        inputs["attention_mask"] = mask[None, None]
    alone = osm.diagnose(
        model, batches=[{"input_ids": part} for part in ids[:, :7].split([3, 4], 1)]
    )
    packed = osm.diagnose(model, **inputs, **options)
    assert (packed.samples, packed.tokens) == ((2, (3, 4)) if padded else (3, (1, 4)))
    left = "padding" if padded else "1 sample of fewer than two tokens"
    assert packed.notes == (f"Left out: {left}.",)
    equal(alone, packed)
    assert packed.bounds == alone.bounds == (3.5, 3.5)  # mean over the samples of 3 and 4 tokens
    assert packed["attention_similarity"] == pytest.approx(alone["attention_similarity"], rel=1e-4)


@pytest.mark.parametrize("flat", [False, True])
def test_tokens_of_each_sequence_by_hand(flat: bool) -> None:
    """Prefix tokens, padding, labels and interleaved sequences, also of outputs (N, C)."""
    x, blocks = draw(2, 6, 8), Blocks()
    ids = torch.tensor([[0, 0, 0, 1, 1, 1], [2, 3, 2, 3, 3, 2]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
    labels = torch.tensor([[0, 0, 1, 0, 1, 1], [0, 1, 1, 0, 1, 0]])
    rows = [[1, 2], [4], [8, 11], [9, 10]]  # without the first token of each
    y, wanted = blocks.blocks[1](x).flatten(0, 1), [i for i in rows if len(i) > 1]
    options = {"segments": ids, "mask": mask, "prefix": 1, "labels": labels}
    if flat:
        x, options = x.flatten(0, 1), {k: v.flatten() for k, v in options.items() if k != "prefix"}
        options |= {"prefix": 1, "mask": mask.reshape(1, -1)}
    report = osm.diagnose(blocks, x, **options)
    for name in ("cosine", "effective_rank", "norm"):
        expected = torch.stack([getattr(osm.metrics, name)(y[i]) for i in wanted]).mean().item()
        assert report[name][1] == pytest.approx(expected, rel=1e-6)
    assert report.unit == "tokens" and report.counts["cosine"] == [3, 3] and report.samples == 4
    assert report["group_distance_ratio"] == [None] * 2 and "not defined in 3" in report.notes[-1]


def test_equal_positions_are_one_sequence() -> None:
    class Positions(Blocks):
        def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
            return super().forward(x)

    for places in (torch.zeros(1, 5).long(), torch.zeros(5).long()):
        assert osm.diagnose(Positions(), X, position_ids=places).samples == 2
    assert osm.diagnose(Positions(), X[:1], torch.tensor([0, 1, 2, 0, 1])).tokens == (2, 3)


def test_norms_without_statistics_are_noted() -> None:
    """In evaluation mode they normalise nothing; at random weights this is always so."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(5)) for _ in "12"))
    [note] = osm.diagnose(model, X, layout="BNC").notes
    assert note.startswith("2 of 2 norms have seen no batch yet")
    model.train()(X)
    assert not osm.diagnose(model, X, layout="BNC").notes
    notes = osm.diagnose(model, X, layout="BNC", reference="random").notes
    assert any("seed 0: 2 of 2 norms have seen no batch yet" in note for note in notes)
