"""What ``apply`` and ``remove`` promise for models of every library."""

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.aggregators.base import PLAIN, After, Context, Inside, advance

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 50}
WORDS = torch.randint(1, 50, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 0, 5], [1, 0, 2, 1, 4, 3, 5, 0]])


class Case(NamedTuple):
    """A model, its inputs, and the first tensor of its output."""

    build: Callable[[], nn.Module]
    inputs: dict[str, Tensor]
    where: tuple[str | None, ...]

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build().eval()

    def run(self, model: nn.Module) -> Tensor:
        output = model(**self.inputs)
        return output if isinstance(output, Tensor) else output[0]


def vit(**options: object) -> nn.Module:
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", **sizes, num_classes=3, **options)


def rope() -> nn.Module:
    return timm.create_model("vit_base_patch16_rope_224", img_size=32, depth=2, num_classes=3)


def bert() -> nn.Module:
    return hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=32))


def gpt2() -> nn.Module:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(n_embd=16, n_head=2, n_layer=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    )


def llama() -> nn.Module:
    config = hf.LlamaConfig(**SMALL, intermediate_size=32, num_key_value_heads=1)
    return hf.LlamaForCausalLM(config)


IMAGE = {"x": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
TEXT = {"input_ids": WORDS, "attention_mask": MASK}
GRAPH = {"x": torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), "edge_index": EDGES}
CASES = {
    "vit": Case(vit, IMAGE, ("branch", "norm2", "norms")),
    "rope": Case(rope, IMAGE, ()),
    "bert": Case(bert, TEXT, ("attention_sum", "context", "norms")),
    "gpt2": Case(gpt2, TEXT, ()),
    "llama": Case(llama, TEXT, ()),
    "gcn": Case(lambda: pyg.GCN(5, 8, 3), GRAPH, (None,)),
    "gat": Case(lambda: pyg.GAT(5, 8, 3, heads=2), GRAPH, (None,)),
    "gin": Case(lambda: pyg.GIN(5, 8, 3), GRAPH, (None,)),
}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
ONE_EACH = pytest.mark.parametrize("case", [CASES[n] for n in ("vit", "bert", "gcn")])


class Scale(Inside):
    """Has a parameter for each channel."""

    can_be_causal = True

    def __init__(self, dim: int, start: float = 2.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), start))

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        return self.scale * mixed


class Push(After):
    """Has a parameter; moves every token away from the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return x + self.strength * (x - x.mean(dim=-2, keepdim=True))


def everything(model: nn.Module) -> dict[str, object]:
    """All that ``apply`` could change."""
    seen: dict[str, object] = {}
    for name, module in model.named_modules():
        seen[name] = (id(module), type(module), list(module.__dict__["_forward_hooks"]),
                      list(module._forward_pre_hooks), sorted(vars(module)))  # fmt: skip
        if hasattr(module, "config"):
            seen[f"{name}.config"] = (id(module.config), module.config._attn_implementation)
    return seen


@ALL
@torch.no_grad()
def test_gamma_0_is_the_plain_model_and_remove_gives_it_back(case: Case) -> None:
    model = case.model()
    before, plain = everything(model), case.run(model)
    assert osm.apply(model, "centered", gamma=0.0) is model
    assert torch.equal(case.run(model), plain)
    assert osm.remove(model) is model
    osm.apply(model, "centered", gamma=-0.5, blocks="last-1")
    assert not torch.equal(case.run(model), plain)
    osm.remove(model)
    assert torch.equal(case.run(model), plain) and everything(model) == before


@ALL
@torch.no_grad()
def test_scale_0_is_the_plain_model(case: Case) -> None:
    model = case.model()
    plain = case.run(model)
    for where in case.where:
        osm.apply(model, "contranorm", scale=0.0, where=where)
        assert torch.equal(case.run(model), plain)
        osm.apply(osm.remove(model), "contranorm", scale=0.5, where=where)
        assert not torch.equal(case.run(model), plain)
        osm.remove(model)


@ALL
@torch.no_grad()
def test_copies_and_pickles_are_independent(case: Case) -> None:
    model = osm.apply(case.model(), "centered", gamma=-0.5)
    file, expected = io.BytesIO(), case.run(model)
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), torch.load(file, weights_only=False)]
    plain = case.run(osm.remove(model))
    for made in copies:
        assert torch.equal(case.run(made), expected)
        assert torch.equal(case.run(osm.remove(made)), plain)
        assert type(made) is type(model)


@ONE_EACH
@torch.no_grad()
def test_state_dicts_load_with_and_without(case: Case) -> None:
    plain = case.model()
    state, applied = plain.state_dict(), osm.apply(case.model(), "centered", gamma=-0.5)
    assert applied.state_dict().keys() == state.keys()
    plain.load_state_dict(applied.state_dict())
    learned = osm.apply(case.model(), [partial(Scale, start=3.0), Push])
    for parameter in learned.parameters():
        parameter.add_(1.0)
    own = learned.state_dict()
    assert own.keys() > state.keys()
    learned.load_state_dict(state)
    for name, value in learned.state_dict().items():
        assert torch.equal(value, state[name] if name in state else own[name])


def test_a_warm_up_is_part_of_the_state() -> None:
    model = osm.apply(vit(), "centered", gamma=-1.0, warmup=10)
    advance(model, 4)
    again = osm.apply(vit(), "centered", gamma=-1.0, warmup=10)
    again.load_state_dict(model.state_dict())
    assert again.blocks[0].attn.inside[0].progress == 0.4


@ONE_EACH
def test_a_gradient_reaches_every_parameter(case: Case) -> None:
    model = osm.apply(case.model().train(), [Scale, Push])
    assert sum(isinstance(m, Scale | Push) for m in model.modules()) >= 4
    case.run(model).square().sum().backward()
    missing = {n for n, p in model.named_parameters() if p.grad is None}
    assert all("pooler" in name for name in missing)


@ONE_EACH
@torch.no_grad()
def test_compiled_models_have_aggregators_too(case: Case) -> None:
    model = case.model()
    compiled = torch.compile(model, backend="eager")
    plain = case.run(compiled)
    osm.apply(compiled, "centered", gamma=-0.5)
    expected = case.run(model)
    assert torch.equal(case.run(compiled), expected) and not torch.equal(plain, expected)


@ONE_EACH
def test_half_precision(case: Case) -> None:
    model = osm.apply(case.model().bfloat16(), ["centered", Push])
    inputs = {k: v.bfloat16() if v.is_floating_point() else v for k, v in case.inputs.items()}
    assert case._replace(inputs=inputs).run(model).dtype == torch.bfloat16
    mixed = osm.apply(case.model(), "centered", gamma=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(case.run(mixed), case.run(case.model()))


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vit = vit(class_token=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.vit(x)


def of_images(model: str, **options: int) -> nn.Module:
    sizes = {**SMALL, "image_size": 32, "patch_size": 8, "intermediate_size": 16, **options}
    del sizes["vocab_size"]
    return getattr(hf, f"{model}Model")(getattr(hf, f"{model}Config")(**sizes))


PREFIXES = {
    "wrapped": (Wrapped, 1),
    "without": (lambda: vit(class_token=False, global_pool="avg"), 0),
    "clip": (lambda: of_images("CLIPVision"), 1),
    "deit": (lambda: of_images("DeiT"), 2),
    "registers": (lambda: of_images("Dinov2WithRegisters", num_register_tokens=3), 4),
    "siglip": (lambda: of_images("SiglipVision"), 0),
}


@pytest.mark.parametrize(("build", "prefix"), PREFIXES.values(), ids=PREFIXES)
@torch.no_grad()
def test_apply_and_diagnose_leave_out_the_same_tokens(
    build: Callable[[], nn.Module], prefix: int
) -> None:
    found = []

    class Looking(Inside):
        def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
            found.append((context.prefix, v.shape[-2]))
            return mixed

    model, image = build().eval(), IMAGE["x"]
    patches = osm.diagnose(model, image).tokens[0]
    osm.apply(model, Looking)(image)
    assert patches == 16 and set(found) == {(prefix, 16 + prefix)}
    osm.remove(model)
    if prefix:
        osm.apply(model, "centered", prefix_in_mean=False)
    else:
        refuses_to_leave_out_a_prefix(model)


@pytest.mark.parametrize("name", ["cait_xxs24_224", "xcit_nano_12_p8_224"])
@torch.no_grad()
def test_blocks_before_the_class_token_hold_patches_only(name: str) -> None:
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}
    model = timm.create_model(name, **sizes).eval()
    assert model.num_prefix_tokens == 1
    assert osm.diagnose(model, torch.randn(2, 3, 32, 32), layers="blocks.*").tokens == (16, 16)


def distilbert() -> nn.Module:
    return hf.DistilBertModel(hf.DistilBertConfig(dim=16, n_layers=2, n_heads=2, vocab_size=50))


@pytest.mark.parametrize("build", [distilbert, gpt2, CASES["gcn"].build])
def test_a_prefix_that_is_not_known_cannot_be_left_out(build: Callable[[], nn.Module]) -> None:
    refuses_to_leave_out_a_prefix(build())


def refuses_to_leave_out_a_prefix(model: nn.Module) -> None:
    before = everything(model)
    said = f"^prefix_in_mean: no token of {type(model).__name__} is known to come before"
    with pytest.raises(osm.InputError, match=said):
        osm.apply(model, "centered", prefix_in_mean=False)
    assert everything(model) == before
    osm.apply(model, "centered", prefix_in_mean=True)


def test_what_the_user_replaced_meanwhile_stays() -> None:
    model = osm.apply(vit(), "centered")
    attention = model.blocks[0].attn
    attention.qkv = mine = nn.Sequential(attention.qkv)
    osm.remove(model)
    assert model.blocks[0].attn is attention and attention.qkv is mine
    assert type(attention) is timm.layers.Attention
