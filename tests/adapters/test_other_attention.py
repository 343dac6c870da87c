"""Attention that is not the model's own, or that is chosen after the aggregators came."""

import pytest
import timm
import torch
import transformers as hf
from applied_models import PADDED, SMALL, WORDS, bert, gpt2, made
from torch import nn

import oversmoothing as osm
from oversmoothing.errors import InputError


def many_tokens() -> nn.Module:
    """More tokens than channels, so that ContraNorm uses torch's fused attention."""
    sizes = {"img_size": 32, "patch_size": 4, "depth": 2, "embed_dim": 32, "num_heads": 2}
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", **sizes).eval()


@torch.no_grad()
def test_the_attention_of_contranorm_is_not_that_of_the_model() -> None:
    model, images = many_tokens(), torch.rand(2, 3, 32, 32)
    alone = osm.diagnose(model, images, metrics=["attention_similarity"])
    osm.apply(model, "contranorm", scale=0.0, identity=False, where="norms")
    applied = osm.diagnose(model, images, metrics=["attention_similarity"])
    assert applied["attention_similarity"] == alone["attention_similarity"]
    osm.apply(osm.remove(model), "centered", gamma=-0.5)
    features = torch.rand(2, 65, 32)
    centered = model.blocks[0].attn(features)
    osm.apply(model, "contranorm", scale=0.5, where="blocks.*.attn.proj")
    contrasted = osm.ContraNorm(32, 0.5)(centered)
    torch.testing.assert_close(model.blocks[0].attn(features), contrasted)


@pytest.mark.parametrize(("first", "second"), [("eager", "sdpa"), ("sdpa", "eager")])
@pytest.mark.parametrize("build", [gpt2, bert])
@torch.no_grad()
def test_another_attention_function_may_be_chosen_later(build, first: str, second: str) -> None:
    model = made(build, osm.Centered, implementation=first)
    expected = model(WORDS, attention_mask=PADDED)[0]
    model.set_attn_implementation(second)
    found = model(WORDS, attention_mask=PADDED)[0]
    torch.testing.assert_close(found[PADDED.bool()], expected[PADDED.bool()])
    if build is gpt2:
        changed = WORDS.clone()
        changed[:, -1] += 1
        assert torch.equal(model(changed)[0][:, :-1], model(WORDS)[0][:, :-1])


def test_attention_that_chooses_keys_by_itself_is_refused() -> None:
    model = osm.apply(bert(), "centered")
    attention = model.encoder.layer[0].attention.self
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(InputError, match="selects its keys inside the attention"):
        attention.inside.attend(attention, q, q, q, None, indices=torch.zeros(1, 3, 2))


def test_norms_inside_a_mixer_are_no_norms_of_tokens() -> None:
    config = hf.Mamba2Config(
        hidden_size=16, num_hidden_layers=2, vocab_size=50, num_heads=4, head_dim=8, n_groups=1
    )
    model = osm.apply(hf.Mamba2Model(config).eval(), "layernorm")
    assert model(WORDS)[0].shape == (2, 7, SMALL["hidden_size"])
