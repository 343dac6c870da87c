"""Aggregators inside torch's own attention, attention over windows, and other kernels."""

import copy
from collections.abc import Iterator
from functools import partial
from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from applied_models import CASES, PADDED, WORDS, bert, gpt2, made, swin, windows
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import remove_parametrizations
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D

import oversmoothing as osm
from oversmoothing.adapters.names import fits
from oversmoothing.errors import InputError

EXACT = {"rtol": 0, "atol": 1e-10}
X = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HIDDEN = ~PADDED.flip(1).bool()[[1, 0]]  # padding on either side
CAUSAL = torch.ones(7, 7, dtype=torch.bool).triu(1)
MASKS = {"none": {}, "padding": {"key_padding_mask": HIDDEN}, "causal": {"attn_mask": CAUSAL},
         "flag": {"attn_mask": CAUSAL, "is_causal": True}}  # fmt: skip


def encoder(**options: object) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, **{"batch_first": True, **options})
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)  # also the bias of the values
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()


def explicit(attention: nn.MultiheadAttention, seen: Tensor, gamma: float) -> Tensor:
    """(M + γ U) V with the uniform attention U over the tokens that each token sees."""
    q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in F.linear(
        X, attention.in_proj_weight, attention.in_proj_bias).chunk(3, dim=-1))  # fmt: skip
    scores = (q @ k.mT / 8**0.5).masked_fill(~seen, -torch.inf)
    matrix = scores.softmax(-1) + gamma * seen.double() / seen.sum(-1, keepdim=True)
    return attention.out_proj((matrix @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_torchs_attention_is_the_explicit_matrix(batch_first: bool, mask: str) -> None:
    model, weights = encoder(batch_first=batch_first), []
    attention, x = model.layers[0].self_attn, X if batch_first else X.transpose(0, 1)
    plain = attention(x, x, x, **MASKS[mask])
    osm.apply(model, "centered", gamma=-0.7)
    seen = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    if mask == "padding":
        seen = seen & ~HIDDEN[:, None, None]
    elif mask != "none":
        seen = seen & ~CAUSAL
    for need_weights in (False, True):
        out, weights = attention(x, x, x, need_weights=need_weights, **MASKS[mask])
        out = out if batch_first else out.transpose(0, 1)
        torch.testing.assert_close(out, explicit(attention, seen, -0.7), **EXACT)
    torch.testing.assert_close(weights, plain[1])


@torch.no_grad()
def test_an_encoder_has_the_method_in_every_mode_and_loses_it() -> None:
    """Its fused path in evaluation would not call the attention."""
    model = encoder(dropout=0.0)
    plain = model(X, src_key_padding_mask=HIDDEN)
    osm.apply(model, "centered", gamma=-0.7)
    found = model(X, src_key_padding_mask=HIDDEN)
    torch.testing.assert_close(model.train()(X, src_key_padding_mask=HIDDEN), found, **EXACT)
    again = osm.restore(encoder(dropout=0.0), osm.recipe(model))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(X, src_key_padding_mask=HIDDEN), found)
    for sentence, hidden in zip(range(2), HIDDEN):
        alone = again(X[sentence : sentence + 1, ~hidden])[0]
        torch.testing.assert_close(found[sentence, ~hidden], alone, **EXACT)
    assert torch.equal(osm.remove(model.eval())(X, src_key_padding_mask=HIDDEN), plain)
    assert type(model.layers[0].self_attn) is nn.MultiheadAttention


@pytest.mark.parametrize("method", ["pairnorm", "contranorm", "batchnorm"])
@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_after_torchs_attention_padding_does_not_count(batch_first: bool, method: str) -> None:
    """In every layer; a sentence alone gives the same as beside a longer one."""
    model = encoder(batch_first=batch_first)
    named = osm.apply(copy.deepcopy(model), method, where="layers.*.self_attn",
                      layout=None if batch_first else "NBC")  # fmt: skip
    osm.apply(model, method)
    x = X if batch_first else X.transpose(0, 1)
    found = model(x, src_key_padding_mask=HIDDEN)
    torch.testing.assert_close(found, named(x, src_key_padding_mask=HIDDEN), **EXACT)
    found = found if batch_first else found.transpose(0, 1)
    for sentence, hidden in zip(range(2), HIDDEN):
        alone = X[sentence : sentence + 1, ~hidden]
        alone = model(alone if batch_first else alone.transpose(0, 1))
        alone = alone[0] if batch_first else alone[:, 0]
        torch.testing.assert_close(found[sentence, ~hidden], alone, **EXACT)


@pytest.mark.parametrize("where", ["layers.*.linear2", "layers.*", "layers.*.norm1"])
@pytest.mark.parametrize("method", ["pairnorm", "batchnorm"])
@torch.no_grad()
def test_at_any_place_in_torchs_layers_padding_does_not_count(where: str, method: str) -> None:
    """Nor in the layers of a decoder; a copy reads its own masks; other masks are refused."""
    model = osm.apply(encoder(), method, where=where).train()
    for layer in model.layers:
        layer.dropout.p = layer.dropout1.p = layer.dropout2.p = layer.self_attn.dropout = 0.0
    every = [model, copy.deepcopy(model)]
    if method == "pairnorm":
        every += [torch.compile(copy.deepcopy(model), backend="eager")]
    for one in every:
        found = one(X, src_key_padding_mask=HIDDEN)
        other = one(X.masked_fill(HIDDEN[..., None], 9.0), src_key_padding_mask=HIDDEN)
        torch.testing.assert_close(found[~HIDDEN], other[~HIDDEN], **EXACT)
        if method == "pairnorm":  # whose statistics are those of one sentence
            for sentence, hidden in zip(range(2), HIDDEN):
                alone = one(X[sentence : sentence + 1, ~hidden])[0]
                torch.testing.assert_close(found[sentence, ~hidden], alone, **EXACT)
        with pytest.raises(InputError, match="shows all tokens"):
            one(X, mask=CAUSAL)
    layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).double().eval()
    decoder = osm.apply(nn.TransformerDecoder(layer, 2).eval(), "pairnorm", where=where)
    found = decoder(X, X, tgt_key_padding_mask=HIDDEN)
    alone = decoder(X[:1, ~HIDDEN[0]], X[:1])[0]
    torch.testing.assert_close(found[0, ~HIDDEN[0]], alone, **EXACT)


class Lengths(nn.Module):
    """Makes a mask itself, which no place outside of its encoder can see."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.tail = encoder(), nn.Linear(16, 16).double()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden = torch.arange(x.shape[1]) >= lengths[:, None]
        return self.tail(self.encoder(x, src_key_padding_mask=hidden))


@pytest.mark.filterwarnings("error")
def test_padding_that_a_method_cannot_see_is_warned_of_once() -> None:
    model, lengths = osm.apply(Lengths(), "pairnorm", where="tail"), torch.tensor([7, 4])
    assert model(X, torch.tensor([7, 7])).isfinite().all()
    with pytest.warns(UserWarning, match="PairNorm at tail"):
        model(X, lengths)
    assert model(X, lengths).isfinite().all()
    assert osm.apply(Lengths(), "layernorm", where="tail")(X, lengths).isfinite().all()
    assert osm.apply(Lengths(), "pairnorm", where="encoder.layers.*")(X, lengths).isfinite().all()


ALONE = [(m, b) for m in ("centered", "gated_attention", "re_attention") for b in (True, False)]
ALONE += [("pairnorm", True), ("contranorm", True)]


@pytest.mark.parametrize(("method", "batch_first"), ALONE)
@torch.no_grad()
def test_one_sequence_without_a_batch_is_a_batch_of_one(method: str, batch_first: bool) -> None:
    model = osm.apply(encoder(batch_first=batch_first), method)
    attention, x, axis = model.layers[0].self_attn, X[0], 0 if batch_first else 1
    given = {"attn_mask": CAUSAL} if method in ("centered", "gated_attention") else {}
    hidden = HIDDEN[:1].flip(1)
    batch = attention(*[x.unsqueeze(axis)] * 3, key_padding_mask=hidden, **given)
    out, weights = attention(x, x, x, key_padding_mask=hidden[0], **given)
    torch.testing.assert_close(out, batch[0].squeeze(axis), **EXACT)
    torch.testing.assert_close(weights, batch[1][0], **EXACT)
    found = model(x, src_key_padding_mask=hidden[0])
    expected = model(x.unsqueeze(axis), src_key_padding_mask=hidden).squeeze(axis)
    torch.testing.assert_close(found[~hidden[0]], expected[~hidden[0]], **EXACT)


@torch.no_grad()
def test_rezero_begins_with_the_norms_of_torchs_layers_alone() -> None:
    model = osm.apply(encoder(), "rezero")
    expected = X
    for layer in model.layers:
        expected = layer.norm2(layer.norm1(expected))
    torch.testing.assert_close(model(X), expected, **EXACT)
    layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).double().eval()
    decoder = osm.apply(nn.TransformerDecoder(layer, 1), "rezero").layers[0]
    expected = decoder.norm3(decoder.norm2(decoder.norm1(X)))
    torch.testing.assert_close(decoder(X, X), expected, **EXACT)


@pytest.mark.parametrize("method", ["pairnorm", "rezero", "centered"])
@torch.no_grad()
def test_with_a_method_torchs_encoder_makes_no_nested_tensors(method: str) -> None:
    """By default it does, in evaluation with padding; also if the scores of padding are finite."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, plain = X.float(), model(X.float(), src_key_padding_mask=HIDDEN)
    found = osm.apply(model, method)(x, src_key_padding_mask=HIDDEN)
    scores = torch.zeros(HIDDEN.shape).masked_fill(HIDDEN, -1e9)
    torch.testing.assert_close(model(x, src_key_padding_mask=scores), found)
    for sentence, hidden in enumerate(HIDDEN):
        alone = model(x[sentence : sentence + 1, ~hidden])[0]
        torch.testing.assert_close(found[sentence, ~hidden], alone)
    osm.remove(model)
    assert model.use_nested_tensor and torch.equal(model(x, src_key_padding_mask=HIDDEN), plain)


class Crossing(nn.TransformerEncoderLayer):
    """Attends to itself, then to other tokens, of which there are as many."""

    def __init__(self) -> None:
        super().__init__(16, 2, 32, batch_first=True)
        self.cross = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor, other: Tensor, hidden: Tensor) -> Tensor:
        x = super().forward(x)
        return x + self.cross(x, other, other, key_padding_mask=hidden)[0]


def test_padding_of_other_tokens_is_none_of_the_own_ones() -> None:
    model = osm.apply(nn.ModuleList(Crossing() for _ in range(2)), "pairnorm")
    assert [hasattr(layer.cross, "after") for layer in model] == [False, False]
    assert [hasattr(layer.self_attn, "after") for layer in model] == [True, True]


MASKS_OF_SOME = {
    **{name: MASKS[name] for name in ("causal", "flag")},
    "finite": {"attn_mask": torch.zeros(7, 7, dtype=X.dtype).masked_fill(CAUSAL, -1e9)},
    "prefix": {"attn_mask": CAUSAL & (torch.arange(7) > 2)},
}


@pytest.mark.parametrize("method", ["pairnorm", "re_attention"])
@pytest.mark.parametrize("mask", MASKS_OF_SOME)
def test_a_call_that_hides_tokens_refuses_methods_that_show_them(mask: str, method: str) -> None:
    model = osm.apply(encoder(), ["layernorm", method])
    attention = model.layers[0].self_attn
    compiled = [torch.compile(attention, backend="eager")] if mask == "causal" else []
    for call in (attention, *compiled):
        with pytest.raises(InputError, match="(PairNorm|ReAttention) shows all"):
            call(X, X, X, **MASKS_OF_SOME[mask])
    with pytest.raises(InputError, match="(PairNorm|ReAttention) shows all"):
        model(X, mask=CAUSAL)
    assert osm.apply(encoder(), "layernorm")(X, mask=CAUSAL).isfinite().all()


WINDOWED = {  # blocks, value and output projections; their names
    "timm": (swin, "layers.*.blocks.*", "attn.qkv", "attn.proj"),
    "Swin": (windows, "encoder.layers.*.blocks.*", "attention.v_proj", "attention.o_proj"),
    "Swinv2": (partial(windows, "Swinv2"), "encoder.layers.*.blocks.*",
               "attention.self.value", "attention.output.dense"),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWED)
@torch.no_grad()
def test_in_windows_the_mean_runs_over_the_whole_image(name: str) -> None:
    """Of every image apart, with and without the shift of the windows."""
    build, pattern, value, out = WINDOWED[name]
    model = build().double().eval()
    blocks = {n: m for n, m in model.named_modules() if fits(n, pattern)}
    assert len(blocks) == 3 and any(torch.tensor(b.shift_size).any() for b in blocks.values())
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    for block in blocks.values():
        nn.init.normal_(block.get_submodule(value).bias)
        given, layers = _inputs(model, block, images), [*map(block.get_submodule, (value, out))]
        v, plain = _outputs(block, layers, given)
        osm.apply(model, "centered", gamma=-0.7)
        _, found = _outputs(block, layers, given)
        osm.remove(model)
        C = plain.shape[-1]
        mean = v[..., -C:].view(3, -1, C).mean(1, keepdim=True)
        shift = F.linear(mean, layers[1].weight).expand(3, len(v) // 3, C).reshape(-1, 1, C)
        torch.testing.assert_close(found, plain - 0.7 * shift, **EXACT)


def _inputs(model: nn.Module, block: nn.Module, images: Tensor) -> tuple:
    """The positional arguments that a block gets."""
    seen: list[tuple] = []
    handle = block.register_forward_pre_hook(lambda module, args: seen.append(args))
    model(images)
    handle.remove()
    return seen[0]


def _outputs(block: nn.Module, layers: list[nn.Module], given: tuple) -> list[Tensor]:
    """Outputs of layers in a call of the block."""
    seen: list[Tensor] = []
    hooks = [m.register_forward_hook(lambda m, args, out: seen.append(out)) for m in layers]
    block(*given)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.fixture
def kernel() -> Iterator[str]:
    """An attention function that gets a mask (B, N) or none, as flash attention does."""

    def attend(module, query, key, value, attention_mask, is_causal=None, **_):
        causal = module.is_causal if is_causal is None else is_causal
        N_q, N = query.shape[2], key.shape[2]
        seen = torch.ones(N_q, N, dtype=torch.bool).tril(N - N_q if causal else N)
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None, -N:].bool()
        seen = seen | ~seen.any(-1, keepdim=True)
        out = F.scaled_dot_product_attention(query, key, value, seen)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("of_tests", attend)
    AttentionMaskInterface.register("of_tests", ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
    return "of_tests"


@pytest.mark.parametrize("build", [bert, gpt2])
@torch.no_grad()
def test_other_kernels_give_what_sdpa_gives(build, kernel: str) -> None:
    """Padding is read from the model's arguments; a cache of keys and values is followed."""
    own, expected = made(build, implementation=kernel), made(build)
    plain = own(WORDS, attention_mask=PADDED)[0]
    for model in (own, expected):
        osm.apply(model, "centered", gamma=-0.7)
    for mask in (None, PADDED):
        rows = WORDS > 0 if mask is None else mask.bool()
        found, theirs = (m(WORDS, attention_mask=mask)[0][rows] for m in (own, expected))
        torch.testing.assert_close(found, theirs, **EXACT)
    assert not torch.allclose(found, plain[rows])
    if build is gpt2:
        first = own(WORDS[:, :5], use_cache=True)
        last = own(WORDS[:, 5:], past_key_values=first.past_key_values)[0]
        torch.testing.assert_close(last, own(WORDS)[0][:, 5:], **EXACT)


class LowRank(nn.Module):
    """LoRA as it is written by hand: nothing but the sum of two maps."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        out, dim = base.weight.shape if isinstance(base, nn.Linear) else base.weight.T.shape
        self.first, self.base = nn.Linear(dim, 2, bias=False), base
        self.second = nn.Linear(2, out, bias=False)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.second(self.first(x))


def low_rank(model: nn.Module) -> nn.Module:
    for name, layer in [*model.named_modules()]:
        if isinstance(layer, nn.Linear | Conv1D):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, LowRank(layer))
    return model


CHANGED = [(name, "centered") for name in ("vit", "swin", "windows", "bert", "gpt2")]
CHANGED += [(name, "contranorm") for name in ("vit", "windows", "bert")]
CHANGED += [("vit", "diffgroupnorm")]


@pytest.mark.parametrize("change", [low_rank, partial(quantize_dynamic, qconfig_spec={nn.Linear})])
@pytest.mark.parametrize(("name", "method"), CHANGED)
@pytest.mark.filterwarnings("ignore:torch.ao.quantization:DeprecationWarning")
@torch.no_grad()
def test_linear_layers_may_be_wrapped_or_quantised(name: str, change, method: str) -> None:
    """The method is in the model as if it had been applied before the change."""
    given = {"centered": {"gamma": -0.7}, "contranorm": {"scale": 0.5}}
    case, options = CASES[name], given.get(method, {"lam": 5.0})
    before = change(osm.apply(case.model(), method, **options))
    after = osm.apply(change(case.model()), method, **options)
    torch.testing.assert_close(case.run(after), case.run(before))
    plain = case.run(change(case.model()))
    assert not torch.equal(case.run(after), plain) and torch.equal(
        case.run(osm.remove(after)), plain
    )


class Wrapped(nn.Module):
    """LoRA as PEFT writes it: put around a layer, whose output it adds to."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = layer
        self.lora = nn.Linear(layer.in_features, layer.out_features, bias=False).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora(x)


@torch.no_grad()
def test_lora_around_a_layer_with_a_method_is_refused_and_before_it_counts() -> None:
    """The method then acts on the sum, as when the product is merged into the weight."""
    for change in (lambda model: model, copy.deepcopy):
        model = change(osm.apply(encoder(), "nodenorm", where="layers.*.linear2"))
        for layer in model.layers:
            layer.linear2 = Wrapped(layer.linear2)
        with pytest.raises(InputError, match="^model: linear2 has been put into Wrapped"):
            model(X)
    osm.remove(model)
    found = osm.apply(model, "nodenorm", where="layers.*.linear2")(X)
    for layer in osm.remove(model).layers:
        layer.linear2.base_layer.weight += layer.linear2.lora.weight
        layer.linear2 = layer.linear2.base_layer
    merged = osm.apply(model, "nodenorm", where="layers.*.linear2")(X)
    torch.testing.assert_close(found, merged, **EXACT)


@pytest.mark.parametrize(
    ("name", "method"), [("swin", "centered"), ("vit", "gated_attention"), ("gcn", "half_hop")]
)
@torch.no_grad()
def test_calls_in_two_threads_do_not_see_each_other(name: str, method: str) -> None:
    """A second call, of other inputs, runs from beginning to end inside the first one."""
    case = CASES[name]
    model, other = osm.apply(case.model(), method), dict(case.inputs)
    other["x"] = torch.cat([other["x"], other["x"]])
    expected, threads = case.run(model), []

    def between(module: nn.Module, args: tuple, kwargs: dict) -> None:
        if not threads:
            threads.append(Thread(target=lambda: model(**other)))
            threads[0].start()
            threads[0].join()

    layer = next(m for n, m in model.named_modules() if n.endswith(("qkv", "lin")))
    layer.register_forward_pre_hook(between, with_kwargs=True)
    assert torch.equal(case.run(model), expected) and threads


@torch.no_grad()
def test_parametrised_weights_stay_when_the_method_goes() -> None:
    """torch derives the class of a module with such weights from the one that it has."""
    plain, model = encoder(), osm.apply(encoder(), "centered", gamma=-0.5)
    for one in (plain, model):
        parametrizations.weight_norm(one.layers[0].self_attn, "in_proj_weight")
    assert torch.equal(osm.remove(model)(X), plain(X))
    remove_parametrizations(model.layers[0].self_attn, "in_proj_weight")
    assert type(model.layers[0].self_attn) is nn.MultiheadAttention
