"""What ``apply`` and ``remove`` promise for models of every library."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import timm
import timm.utils
import torch
import transformers as hf
from applied_models import (
    ALL,
    CASES,
    IMAGE,
    ONE_EACH,
    SMALL,
    Case,
    Push,
    Scale,
    bert,
    everything,
    vit,
)
from safetensors.torch import load_file
from small_vit import images
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.blocks import choose, find_blocks
from oversmoothing.aggregators.base import PLAIN, Context, Inside, advance
from oversmoothing.errors import InputError

COMPILED = [  # models, methods and places
    *(
        ("vit", "pairnorm", "blocks.*"),
        ("vit", "pairnorm", "blocks.*.mlp"),
        ("vit", "centered", None),
    ),
    *(("bert", "layernorm", None), ("gcn", "residual", None), ("gcn", "pairnorm", "convs.*")),
]


@ALL
@torch.no_grad()
def test_without_effect_it_is_the_plain_model_and_remove_gives_it_back(case: Case) -> None:
    """γ = 0 and s = 0 change no bit."""
    model = case.model()
    before, plain = everything(model), case.run(model)
    for method, option, where in (
        ("centered", "gamma", None),
        *(("contranorm", "scale", where) for where in case.where),
    ):
        assert osm.apply(model, method, where=where, **{option: 0.0}) is model
        assert torch.equal(case.run(model), plain)
        assert osm.remove(model) is model
        osm.apply(model, method, where=where, **{option: -0.5})
        assert not torch.equal(case.run(model), plain)
        osm.remove(model)
        assert torch.equal(case.run(model), plain) and everything(model) == before


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


@ONE_EACH
def test_a_state_with_some_aggregators_lacks_the_others(case: Case) -> None:
    """Wherever they are; if the values that stay are on the meta device, all are missing."""
    model = osm.apply(case.model(), [Scale, Push])
    own = model.state_dict()
    learned = sorted(own.keys() - case.model().state_dict().keys())
    for one in learned:
        found = model.load_state_dict({k: v for k, v in own.items() if k != one}, strict=False)
        assert found == ([one], [])
        few = {k: v for k, v in own.items() if k == one or k not in learned}
        assert sorted(model.load_state_dict(few, strict=False)[0]) == [
            k for k in learned if k != one
        ]
        assert model.load_state_dict(own) == ([], [])
    plain = {k: v for k, v in own.items() if k not in learned}
    missing, _ = model.to("meta").load_state_dict(plain, strict=False, assign=True)
    assert sorted(missing) == learned


def test_a_warm_up_is_part_of_the_state_that_is_saved_and_averaged(tmp_path: Path) -> None:
    model = osm.apply(bert(), "centered", gamma=-1.0, warmup=10)
    advance(model, 4)
    model.save_pretrained(tmp_path)
    average = timm.utils.ModelEmaV2(model)
    average.update(model)
    again = osm.apply(bert(), "centered", gamma=-1.0, warmup=10)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert again.encoder.layer[0].attention.self.inside[0].progress == 0.4


@ONE_EACH
def test_a_gradient_reaches_every_parameter(case: Case) -> None:
    model = osm.apply(case.model().train(), [Scale, Push])
    assert sum(isinstance(m, Scale | Push) for m in model.modules()) >= 4
    case.run(model).square().sum().backward()
    missing = {n for n, p in model.named_parameters() if p.grad is None}
    assert all("pooler" in name for name in missing)


@pytest.mark.parametrize("name", ["vit", "gcn"])
@torch.no_grad()
def test_compiled_models_have_aggregators_too(name: str) -> None:
    case = CASES[name]
    model = case.model()
    compiled = torch.compile(model, backend="eager")
    plain = case.run(compiled)
    osm.apply(compiled, "centered", gamma=-0.5)
    expected = case.run(model)
    assert torch.equal(case.run(compiled), expected) and not torch.equal(plain, expected)


@pytest.mark.parametrize(("name", "method", "where"), COMPILED)
@torch.no_grad()
def test_compiled_parts_have_aggregators_once(name: str, method: str, where: str | None) -> None:
    case = CASES[name]
    plain, model = case.model(), case.model()
    for block in find_blocks(model):
        parent, _, own = block.rpartition(".")
        setattr(model.get_submodule(parent), own, torch.compile(model.get_submodule(block)))
    before = case.run(plain)
    with torch.compiler.set_stance("force_eager"):
        osm.apply(plain, method, where=where)
        assert torch.equal(case.run(osm.apply(model, method, where=where)), case.run(plain))
        assert torch.equal(case.run(osm.remove(model)), before)


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
    if prefix:
        osm.apply(osm.remove(model), "centered", prefix_in_mean=False)


@pytest.mark.parametrize("name", ["cait_xxs24_224", "xcit_nano_12_p8_224"])
@torch.no_grad()
def test_blocks_before_the_class_token_hold_patches_only(name: str) -> None:
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}
    model = timm.create_model(name, **sizes).eval()
    assert model.cls_token.shape[1] == 1
    assert osm.diagnose(model, torch.randn(2, 3, 32, 32), layers="blocks.*").tokens == (16, 16)


def test_what_the_user_replaced_meanwhile_stays() -> None:
    model = osm.apply(vit(), "centered")
    attention = model.blocks[0].attn
    attention.qkv = mine = nn.Sequential(attention.qkv)
    osm.remove(model)
    assert model.blocks[0].attn is attention and attention.qkv is mine
    assert type(attention) is timm.layers.Attention


@ALL
@torch.no_grad()
def test_two_calls_are_one_and_remove_undoes_both(case: Case) -> None:
    """Each call reads padding and graphs for itself."""
    model = case.model()
    before, plain = everything(model), case.run(model)
    expected = case.run(osm.apply(model, "centered", gamma=-0.5))
    found = choose(osm.remove(model), "all").every
    for blocks in ("last-1", range(len(found) - 1)):
        osm.apply(model, "centered", gamma=-0.5, blocks=blocks)
        assert choose(model, "all").every == found
    assert torch.equal(case.run(model), expected)
    osm.remove(model)
    assert torch.equal(case.run(model), plain) and everything(model) == before


def test_a_pattern_after_blocks() -> None:
    """The pattern names modules without aggregators in blocks that have some elsewhere."""
    model = CASES["vit"].model()
    osm.apply(model, "centered", gamma=-1)
    osm.apply(model, "pairnorm", where="blocks.*.mlp")
    assert model(images(1, 3, 32, 32)).isfinite().all()
    with pytest.raises(InputError, match="^blocks: "):
        osm.apply(model, "pairnorm", where="blocks.*.attn")
