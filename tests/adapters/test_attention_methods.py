"""Methods for attention in models of every library: where they start, and what they see."""

import copy
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
import transformers as hf
from applied_models import CASES, MASK, SMALL, WORDS, Case, encoder
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.names import fits

CLOSE = {"rtol": 1e-8, "atol": 1e-9}
X = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
METHODS = {  # and the options with which they start as the model, and learn
    "attn_scale": {},
    "feat_scale": {},
    "shaped_attention": {},
    "neutreno": {"scale": 0.0, "learned": True},
    "value_residual": {"first": 0.0, "own": 1.0, "learned": True},
    "gated_attention": {"identity": True},
    "re_attention": {"norm": False, "identity": True},
}
OF_FIRST = ("neutreno", "value_residual")  # the first layer learns nothing
CAUSAL = ("gpt2", "llama")


def gat() -> nn.Module:
    return pyg.GAT(5, 8, 3, heads=2)


class Strong(Case):
    """A case in float64 whose large weights make every method matter."""

    def model(self) -> nn.Module:
        model = super().model().double()
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                nn.init.normal_(parameter, std=0.4)
        return model


def strong(case: Case) -> Strong:
    inputs = {n: x.double() if x.is_floating_point() else x for n, x in case.inputs.items()}
    return Strong(case.build, inputs, case.where)


MODELS = {
    **{name: strong(CASES[name]) for name in ("vit", "rope", "bert", "gpt2", "llama", "gat")},
    "encoder": strong(Case(encoder, {"src": X, "src_key_padding_mask": ~MASK.bool()}, ())),
}
EVERY = pytest.mark.parametrize("method", METHODS)


def offers(name: str, method: str) -> bool:
    """Whether a method acts in a model."""
    return name not in {
        "feat_scale": (*CAUSAL, "encoder"),
        "gated_attention": ("gat",),
        "re_attention": (*CAUSAL, "gat"),
        "neutreno": ("gat",),
        "value_residual": ("gat",),
    }.get(method, ())


def moved(model: nn.Module, method: str) -> nn.Module:
    """A model with the method, whose parameters have left the start."""
    own = {id(p) for p in model.parameters()}
    osm.apply(model, method, **METHODS[method])
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if id(parameter) not in own:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", MODELS)
@EVERY
def test_it_starts_as_the_model_and_learns(name: str, method: str) -> None:
    if not offers(name, method):
        return
    case = MODELS[name]
    plain = case.run(case.model())
    model = case.model()
    own = {id(p) for p in model.parameters()}
    osm.apply(model, method, **METHODS[method])
    torch.testing.assert_close(case.run(model), plain, **CLOSE)
    model.train()
    case.run(model).square().sum().backward()
    new = {n: p for n, p in model.named_parameters() if id(p) not in own}
    assert all(p.grad is not None for p in new.values())  # for which distributed training waits
    assert all(p.dim() for p in new.values())  # fully_shard takes no scalars
    learning = [n for n, p in new.items() if p.grad.abs().max() > 0]
    assert len(learning) == len(new) // (2 if method in OF_FIRST else 1), new.keys()
    assert not torch.allclose(case.run(moved(case.model(), method)), plain, atol=1e-3)
    assert torch.equal(case.run(osm.remove(model.eval())), plain)


@EVERY
@torch.no_grad()
def test_padding_and_later_words_are_not_seen(method: str) -> None:
    """Generation with a cache, also a static one, gives the same as the whole text."""
    bert = moved(MODELS["bert"].model(), method)
    together = bert(WORDS, attention_mask=MASK)[0]
    torch.testing.assert_close(together[1:, :5], bert(WORDS[1:, :5])[0], **CLOSE)
    for name in [name for name in CAUSAL if offers(name, method)]:
        model = moved(MODELS[name].model(), method)
        full = model(WORDS).logits
        torch.testing.assert_close(model(WORDS[:, :4]).logits, full[:, :4], **CLOSE)
        first = model(WORDS[:, :4], use_cache=True)
        rest = model(WORDS[:, 4:], past_key_values=first.past_key_values).logits
        torch.testing.assert_close(rest, full[:, 4:], **CLOSE)
        given = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        kinds = ({}, {"cache_implementation": "static"}, {"use_cache": False})
        one, static, none = (model.generate(WORDS[:1], **given, **kind) for kind in kinds)
        assert torch.equal(one, static) and torch.equal(one, none)


@EVERY
@torch.no_grad()
def test_it_survives_copies_files_compilation_and_export(method: str, tmp_path: Path) -> None:
    case = MODELS["vit"]
    model = moved(case.model(), method)
    expected, file = case.run(model), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = osm.restore(case.model(), osm.recipe(model))
    again.load_state_dict(model.state_dict())
    x = case.inputs["x"]
    for made in (copy.deepcopy(model), torch.load(file, weights_only=False), again):
        assert torch.equal(made(x), expected)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, **CLOSE)
    torch.compiler.reset()
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected, **CLOSE)
    text = MODELS["bert"]
    bert = moved(text.model(), method)
    bert.save_pretrained(tmp_path)
    loaded = osm.restore(type(bert).from_pretrained(tmp_path).eval())
    assert torch.equal(text.run(loaded), text.run(bert))


@torch.no_grad()
def test_compiled_models_take_batches_of_other_sizes() -> None:
    """So they are compiled again, after a call has left something behind for hooks."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = moved(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), "gated_attention")
    compiled, x = torch.compile(model.eval(), backend="eager", fullgraph=True), X.repeat(3, 1, 1)
    for batch in (x[:2], x[:3]):
        torch.testing.assert_close(compiled(batch), model(batch), **CLOSE)


@pytest.mark.parametrize("method", OF_FIRST)
def test_transforms_of_torch_see_the_values_of_the_first_layer(method: str) -> None:
    model, x = moved(MODELS["encoder"].model().eval(), method), X[:1].double().requires_grad_()
    expected = torch.autograd.grad(model(x).square().sum(), x)[0]
    found = torch.func.grad(lambda x: model(x).square().sum())(x.detach())
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", ["bert", "encoder"])
def test_a_sample_without_words_changes_no_other(name: str, norm: bool) -> None:
    """Its tokens see nothing, and softmax over nothing is NaN, also in gradients."""
    model = MODELS[name].model()
    osm.apply(model, "re_attention", norm=norm)
    both, alone = (_of_sentences(name, model, n) for n in (2, 1))
    torch.testing.assert_close(both[0][:1], alone[0], **CLOSE)
    assert both[0].isfinite().all() and all(grad.isfinite().all() for grad in both[1])
    for found, expected in zip(both[1], alone[1], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_autocast_keeps_differences_of_maps_that_are_alike() -> None:
    """As at small initial weights; the batch norm divides by them."""
    torch.manual_seed(0)
    model = osm.apply(encoder(), "re_attention").train()
    for layer in model.layers:
        layer.self_attn.in_proj_weight.mul_(0.3)
        layer.dropout1.p = layer.dropout2.p = layer.dropout.p = layer.self_attn.dropout = 0.0
    expected = copy.deepcopy(model).double()(X.double())
    with torch.autocast("cpu", torch.bfloat16):
        found = model(X)
    assert (found.double() - expected).norm() < 0.02 * expected.norm()


def _of_sentences(name: str, model: nn.Module, n: int) -> tuple[Tensor, list[Tensor]]:
    """The output for the first of n sentences, the second of which is empty, and its gradients."""
    mask = torch.tensor([[1] * 7, [0] * 7])[:n]
    if name == "bert":
        out = model(WORDS[:n], attention_mask=mask)[0]
    else:
        out = model(X[:n].double(), src_key_padding_mask=~mask.bool())
    used = [p for p in model.parameters()]
    grads = torch.autograd.grad(out[0].square().sum(), used, allow_unused=True)
    return out, [grad for grad in grads if grad is not None]


def test_queries_are_the_tokens_of_a_gate_in_any_order_of_arguments() -> None:
    attention = osm.apply(encoder(), "gated_attention").layers[0].self_attn.eval()
    q, k, v = X, 2 * X, 3 * X
    assert torch.equal(attention(key=k, value=v, query=q)[0], attention(q, k, v)[0])


def gradients(model: nn.Module, run: Callable[[], Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    run().square().sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["vit", "llama"])
@EVERY
def test_gradient_checkpointing_gives_the_same_gradients(name: str, method: str) -> None:
    if not offers(name, method):
        return
    case = MODELS[name]
    model = moved(case.model(), method).train()
    plain = gradients(model, lambda: case.run(model))
    if name == "vit":
        model.set_grad_checkpointing()
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for found in (gradients(model, lambda: case.run(model)) for _ in range(2)):
        assert found.keys() == plain.keys()
        for parameter, gradient in found.items():
            torch.testing.assert_close(gradient, plain[parameter], **CLOSE)


@pytest.mark.parametrize("method", OF_FIRST)
def test_checkpointed_encoders_and_decoders_have_their_own_first_layers(method: str) -> None:
    sizes = {"num_layers": 2, "d_model": 16, "d_ff": 16, "num_heads": 2, "d_kv": 8}
    torch.manual_seed(0)
    model = hf.T5Model(hf.T5Config(**sizes, vocab_size=50, dropout_rate=0.0)).double().train()
    words = {"input_ids": WORDS, "attention_mask": MASK, "decoder_input_ids": WORDS[:, :4]}
    plain = gradients(moved(model, method), lambda: model(**words)[0])
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for parameter, gradient in gradients(model, lambda: model(**words)[0]).items():
        torch.testing.assert_close(gradient, plain[parameter], **CLOSE)


@pytest.mark.parametrize("method", OF_FIRST)
def test_checkpointing_refuses_what_would_give_wrong_gradients(method: str) -> None:
    """Reentrant checkpoints, and two calls whose layers cannot be told apart; a call without a
    backward pass is forgotten."""
    case = MODELS["llama"]
    model = moved(case.model(), method).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    case.run(model)  # its graph is gone
    expected = gradients(model, lambda: case.run(model))
    two = case.run(model).sum() + case.run(model).sum()
    with pytest.raises(osm.InputError, match="^model: gradient checkpointing"):
        two.backward()
    del two
    found = gradients(model, lambda: case.run(model))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    with pytest.raises(osm.InputError, match="^model: gradient checkpointing"):
        gradients(model, lambda: case.run(model))


@pytest.mark.parametrize("method", OF_FIRST)
def test_a_layer_needs_the_first_one(method: str) -> None:
    model = moved(MODELS["vit"].model(), method)
    x = torch.randn(2, 17, 32).double()
    model.blocks[0](x)
    with pytest.raises(osm.InputError, match="^model: a layer"):
        model.blocks[1](x)
    for build, blocks in ((MODELS["vit"].build, [1]), (MODELS["gat"].build, "all")):
        with pytest.raises(osm.InputError, match="^(blocks|aggregator)"):
            osm.apply(build(), method, blocks=blocks)
    sizes = SMALL | {"head_dim": 8, "intermediate_size": 16, "num_key_value_heads": 1}
    gemma = osm.apply(hf.Gemma2ForCausalLM(hf.Gemma2Config(**sizes, sliding_window=2)), method)
    with pytest.raises(osm.InputError, match="^model: .*use_cache=False"):  # the first is cut off
        gemma.generate(WORDS, max_new_tokens=2)
    assert gemma.generate(WORDS, max_new_tokens=2, use_cache=False).shape[1] > WORDS.shape[1]


@pytest.mark.parametrize("name", ["vit", "encoder", "llama"])
@torch.no_grad()
def test_the_values_of_the_first_layer_reach_the_later_ones(name: str) -> None:
    """With a = 1 and b = 0 the later ones mix V₁."""
    case = MODELS[name]
    model = case.model()
    values = {"vit": "blocks.*.attn.qkv", "llama": "model.layers.*.self_attn.v_proj"}
    plain = case.run(model)
    for method, off in (("neutreno", {"scale": 0.0}), ("value_residual", {"first": 0, "own": 1})):
        torch.testing.assert_close(case.run(osm.apply(model, method, **off)), plain, **CLOSE)
        osm.remove(model)
    if name == "encoder":
        return
    osm.apply(model, "value_residual", first=1.0, own=0.0)
    found = case.run(model)
    osm.remove(model)
    layers = [m for n, m in model.named_modules() if fits(n, values[name])]
    seen: list[Tensor] = []

    def in_place_of(module: nn.Module, args: tuple, out: Tensor) -> Tensor:
        C = out.shape[-1] // (3 if name == "vit" else 1)
        seen.append(out[..., -C:])
        return torch.cat([out[..., :-C], seen[0]], dim=-1)

    for layer in layers:
        layer.register_forward_hook(in_place_of)
    torch.testing.assert_close(case.run(model), found, **CLOSE)
