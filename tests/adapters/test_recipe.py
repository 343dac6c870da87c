"""A model with methods survives saving: by its recipe, its state, a copy, a pickle, an export."""

import copy
import inspect
import io
import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from applied_models import ALL, CASES, ONE_EACH, Case, Push, Scale, bert, everything, vit
from safetensors.torch import load_file, save_file
from torch import nn

import oversmoothing as osm
from oversmoothing.adapters.names import known
from oversmoothing.errors import InputError


def old_names() -> nn.Module:
    """A model in whose files parameters have other names than in its state."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32}
    return hf.ViTModel(hf.ViTConfig(**sizes, num_hidden_layers=2, patch_size=8))


OLD_NAMES = Case(old_names, {"pixel_values": torch.rand(2, 3, 32, 32)}, ())


@ALL
@torch.no_grad()
def test_a_recipe_makes_the_same_model_again(case: Case) -> None:
    """Also that of a copy and of a pickle, which are independent; without methods it is empty."""
    model = case.model()
    before = everything(model)
    osm.apply(model, "centered", gamma=-0.5, blocks="last-1")
    osm.apply(model, ["centered", partial(osm.Centered, -0.3)], blocks=np.array([0]))
    recipe, expected = osm.recipe(model), case.run(model)
    assert len(recipe) == 2 and recipe == json.loads(json.dumps(recipe))
    again = osm.restore(case.model(), recipe)
    assert torch.equal(case.run(again), expected) and osm.recipe(again) == recipe
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert osm.recipe(torch.compile(again)) == recipe
    copies = [copy.deepcopy(model), torch.load(file, weights_only=False)]
    osm.remove(model)
    assert osm.recipe(model) == [] and everything(model) == before
    plain = case.run(model)
    for made in copies:
        assert osm.recipe(made) == recipe and torch.equal(case.run(made), expected)
        assert torch.equal(case.run(osm.remove(made)), plain) and type(made) is type(model)
    assert everything(osm.remove(model)) == before  # nothing to remove is no mistake


@pytest.mark.parametrize("method", ["centered", "neutreno", "rezero"])
def test_a_recipe_holds_the_defaults_which_may_change(method: str) -> None:
    """Each number and word that the class has a default for, but no size of the network."""
    [call] = osm.recipe(osm.apply(vit(), method))
    options = inspect.signature(known()[method]).parameters
    expected = {
        n: p.default for n, p in options.items() if isinstance(p.default, int | float | str)
    }
    assert call["methods"] == [{"name": method, **expected}]


@ONE_EACH
@torch.no_grad()
def test_learned_methods_are_loaded_into_the_restored_model(case: Case, tmp_path: Path) -> None:
    model = osm.apply(case.model(), [partial(Scale, start=3.0), Push])
    for parameter in model.parameters():
        parameter.add_(0.1)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = osm.restore(case.model(), osm.recipe(model), own=[Scale, Push])
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(case.run(again), case.run(model))
    with pytest.raises(InputError, match="^recipe: method Scale"):
        osm.restore(case.model(), osm.recipe(model))


@pytest.mark.parametrize("method", ["centered", "learned"])
@pytest.mark.parametrize("name", ["bert", "llama", "windows", "vit of transformers"])
@torch.no_grad()
def test_a_model_of_transformers_carries_its_recipe(name: str, method: str, tmp_path: Path) -> None:
    """A load without it is named; parameters of methods are read from the saved files."""
    learned = Push if name == "windows" else Scale
    case = OLD_NAMES if name == "vit of transformers" else CASES[name]
    own = [learned] if method == "learned" else []
    model = osm.apply(case.model(), own or "centered", **({} if own else {"gamma": -0.5}))
    for parameter in model.parameters():
        parameter.add_(0.1)
    model.save_pretrained(tmp_path, max_shard_size="10KB" if own else "1GB")
    plain = type(model).from_pretrained(tmp_path).eval()
    assert not torch.equal(case.run(plain), case.run(model))
    says = f"names {learned.__name__ if own else 'centered'}"
    assert any(says in note for note in osm.diagnose(plain, **case.inputs).notes)
    for look in (osm.recipe, lambda model: osm.remove(osm.apply(model, "layernorm"))):
        with pytest.warns(UserWarning, match=says):
            look(plain)
    plain = type(model).from_pretrained(tmp_path).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert torch.equal(case.run(osm.restore(plain, own=own)), case.run(model))
    osm.remove(plain).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="^recipe: "):
        osm.restore(type(model).from_pretrained(tmp_path))


@torch.no_grad()
def test_a_head_has_the_parameters_of_the_model_inside_and_missing_ones_are_named(
    tmp_path: Path,
) -> None:
    case = CASES["bert"]
    model = osm.apply(case.model(), partial(Scale, start=3.0))
    model.save_pretrained(tmp_path)
    headed = hf.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    osm.restore(headed, own=[Scale])
    assert headed.bert.encoder.layer[0].attention.self.inside[0].scale.eq(3).all()
    headed.save_pretrained(tmp_path)
    again, without = (hf.BertModel.from_pretrained(tmp_path).eval() for _ in range(2))
    assert torch.equal(case.run(osm.restore(again, own=[Scale])), case.run(model))
    (tmp_path / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match="initial values"):
        osm.restore(without, own=[Scale])


def named(config: hf.PretrainedConfig) -> list[dict]:
    """The calls in a configuration of a BERT, without their part."""
    return [{key: call[key] for key in call if key != "part"} for call in config.oversmoothing]


@pytest.mark.parametrize("parts", [["encoder"], ["decoder"], ["encoder", "decoder"]])
def test_methods_of_a_part_are_restored_in_this_part(parts: list[str], tmp_path: Path) -> None:
    """Also where it is not the part that ``apply`` chooses in the whole model."""
    sizes = {
        f"{part}_{of}": 2 for part in ("encoder", "decoder") for of in ("layers", "attention_heads")
    }
    model = hf.BartModel(hf.BartConfig(vocab_size=30, d_model=16, **sizes))
    for number, part in enumerate(parts):
        osm.apply(getattr(model, part), "attn_scale", start=float(number))
    model.save_pretrained(tmp_path)
    again = osm.restore(hf.BartModel.from_pretrained(tmp_path))
    assert osm.recipe(again) == osm.recipe(model)
    again.save_pretrained(tmp_path)
    headed = osm.restore(hf.BartForConditionalGeneration.from_pretrained(tmp_path))
    assert osm.recipe(headed.model) == osm.recipe(model)
    osm.remove(getattr(again, parts[0]))
    left = [call["part"] for call in getattr(again.config, "oversmoothing", [])]
    assert left == ["BartDecoder"] * (len(parts) - 1)


def test_models_of_one_configuration_are_told_apart() -> None:
    """The methods of one are not missing in the others, and only the own ones are forgotten."""
    config = bert().config
    alike = copy.deepcopy(config)
    first, second, plain = (hf.BertModel(config) for _ in range(3))
    osm.apply(first, "centered")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert not osm.recipe(osm.remove(plain))
        assert not any(
            "names" in n for n in osm.diagnose(plain, CASES["bert"].inputs["input_ids"]).notes
        )
        assert named(config) == osm.recipe(first)
        own = osm.apply(hf.BertModel(alike), "attn_scale")
    assert named(own.config) == osm.recipe(own) != osm.recipe(first)
    with pytest.warns(UserWarning, match="same configuration"):
        osm.apply(second, "pairnorm")
    osm.remove(first.encoder)  # a part
    assert not osm.recipe(osm.remove(second)) and not hasattr(config, "oversmoothing")


def test_the_recipe_of_a_part_names_the_part() -> None:
    model = nn.ModuleDict({"image": vit(), "text": bert()})
    osm.apply(model["image"], "pairnorm", where="norm2")
    [call] = osm.recipe(model)
    assert call["module"] == "image" and call["where"] == "norm2"
    again = osm.restore(nn.ModuleDict({"image": vit(), "text": bert()}), [call])
    assert isinstance(again["image"].blocks[0].norm2.before[0], osm.PairNorm)
    with pytest.raises(InputError, match="^recipe: .*image"):
        osm.restore(bert(), [call])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [{}],
        [1],
        "pairnorm",
        [{"methods": ["pairnorm"]}],
        [{"methods": [], "depth": 1}],
        [{"methods": 3}],
        [{"methods": [{"name": [1]}]}],
    ],
)
def test_a_recipe_of_another_form_is_refused(wrong: object) -> None:
    model = bert()
    with pytest.raises(InputError, match="^recipe: "):
        osm.restore(model, wrong)
    assert not osm.recipe(model)


@pytest.mark.parametrize(
    "method", [lambda: osm.PairNorm(), partial(osm.PairNorm, scale=torch.ones(1))]
)
def test_what_json_cannot_say_is_named_when_it_is_asked_for(method) -> None:
    model = osm.apply(bert(), method)
    with pytest.raises(InputError, match="^recipe: "):
        osm.recipe(model)
    assert not hasattr(model.config, "oversmoothing")
