"""Padded patches change no image; several images in one sequence are refused or kept apart."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionTransformer

import oversmoothing as osm

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 32}
METHODS = {"centered": {"gamma": -1.0}, "contranorm": {"scale": 0.5}, "pairnorm": {}}
REAL, ALL = 12, 16  # patches of the image, and with padding
Case = tuple[nn.Module, Callable[[float], dict[str, Any]]]


def siglip() -> Case:
    """Returns a model, and its inputs with a value in the padding."""
    model = hf.Siglip2VisionModel(hf.Siglip2VisionConfig(**SMALL, patch_size=4, num_patches=ALL))
    image, mask = torch.randn(1, REAL, 48), torch.arange(ALL)[None] < REAL
    shapes = torch.tensor([[3, 4]])
    return model, lambda value: {
        "pixel_values": F.pad(image, (0, 0, 0, ALL - REAL), value=value),
        "pixel_attention_mask": mask.long(),
        "spatial_shapes": shapes,
    }


def idefics() -> Case:
    model = Idefics3VisionTransformer(hf.Idefics3VisionConfig(**SMALL, patch_size=8, image_size=32))
    image, mask = torch.randn(1, 3, 24, 32), torch.arange(4)[None, :, None] < 3
    return model, lambda value: {
        "pixel_values": F.pad(image, (0, 0, 0, 8), value=value),
        "patch_attention_mask": mask.expand(1, 4, 4).clone(),
    }


def naflex() -> Case:
    size = {"embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 0}
    model = timm.create_model("naflexvit_base_patch16_gap", **size)
    patches = torch.randn(1, REAL, 768)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4))[None]
    valid = torch.arange(ALL)[None] < REAL
    return model, lambda value: {
        "x": {
            "patches": F.pad(patches, (0, 0, 0, ALL - REAL), value=value),
            "patch_coord": places,
            "patch_valid": valid,
        }
    }


def features(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    output = model(**inputs)
    return output if isinstance(output, Tensor) else output.last_hidden_state[:, :REAL]


@pytest.mark.parametrize("case", [siglip, idefics, naflex])
@torch.no_grad()
def test_what_is_in_the_padding_changes_nothing(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, inputs = case()
    for name, options in METHODS.items():
        osm.apply(model.eval(), name, **options)
        zeros, nines = (features(model, inputs(value)) for value in (0.0, 9.0))
        torch.testing.assert_close(zeros, nines)
        osm.remove(model)
    report = osm.diagnose(model, **inputs(9.0))
    assert report.tokens == (REAL, REAL) and "Left out: padding." in report.notes
    assert report.values == osm.diagnose(model, **inputs(0.0)).values


@torch.no_grad()
def test_several_images_in_a_sequence() -> None:
    torch.manual_seed(0)
    config = hf.PixtralVisionConfig(**SMALL, patch_size=8, image_size=32)
    model = hf.PixtralVisionModel(config).eval()
    images = torch.randn(2, 3, 32, 32)
    run = partial(features, model)
    both = {"pixel_values": images, "image_sizes": torch.tensor([[32, 32]] * 2)}
    one = {"pixel_values": images[:1], "image_sizes": torch.tensor([[32, 32]])}
    osm.apply(model, "centered")
    torch.testing.assert_close(run(both), run(one)[:, :REAL])
    osm.apply(osm.remove(model), "layernorm")
    torch.testing.assert_close(run(both), run(one)[:, :REAL])
    osm.apply(osm.remove(model), "pairnorm")
    run(one)
    with pytest.raises(osm.InputError, match="several images in one sequence.*one image at a time"):
        run(both)


def test_attention_sinks_are_refused_inside() -> None:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    model = hf.GptOssModel(hf.GptOssConfig(**small, **heads, vocab_size=9))
    with pytest.raises(osm.InputError, match="attention sinks, so the rows .* after the mixing"):
        osm.apply(model, "centered")
