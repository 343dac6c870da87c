"""Aggregators in transformers' models: padding, places, checkpointing, refusals."""

from functools import partial

import numpy as np
import pytest
import timm
import torch
import transformers as hf
from applied_models import PADDED, SMALL, WORDS, Push, bert, centered, gpt2, made
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.bert import BERT

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.mark.parametrize("aggregator", [centered, osm.PairNorm, Push])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_padding(aggregator, implementation: str) -> None:
    model = made(bert, aggregator, implementation=implementation)
    places = (PADDED.cumsum(1) - 1).clamp(min=0)
    found = model(WORDS, attention_mask=PADDED, position_ids=places)[0]
    for row, words, mask in zip(found, WORDS, PADDED.bool()):
        torch.testing.assert_close(row[mask], model(words[None, mask])[0][0], **EXACT)


def test_functions_build_aggregators_with_the_channels_of_the_model() -> None:
    model = osm.apply(bert(), lambda dim: osm.LayerNorm(dim), blocks=np.arange(1))
    assert [len(m.norm.weight) for m in model.modules() if isinstance(m, osm.LayerNorm)] == [16]


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (1, 2), (2, 1)])
def test_the_layers_of_an_albert_have_their_places(groups: int, inner: int) -> None:
    model = hf.AlbertModel(hf.AlbertConfig(
        **SIZES, intermediate_size=8, embedding_size=8, vocab_size=9, num_hidden_groups=groups,
        inner_group_num=inner))  # fmt: skip
    for where in (None, "attention_norm"):
        osm.apply(model, "contranorm", where=where)
        assert sum(isinstance(m, osm.ContraNorm) for m in model.modules()) == groups * inner
        osm.remove(model)


AUDIO = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
         "intermediate_size": 32, "conv_dim": [8, 8], "conv_stride": [5, 2],
         "conv_kernel": [10, 3], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
         "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}  # fmt: skip
SOUND = torch.randn(2, 400, generator=torch.Generator().manual_seed(0))
NORMS: dict[str, tuple] = {  # model, input, the tokens at the places, number of places
    "vit": (lambda: hf.ViTModel(hf.ViTConfig(**SIZES, intermediate_size=8, image_size=8,
                                             patch_size=4)),
            torch.randn(2, 3, 8, 8), (2, 5, 16), 4),
    "a BatchNorm between": (lambda: hf.Wav2Vec2ConformerModel(
        hf.Wav2Vec2ConformerConfig(**AUDIO, conv_depthwise_kernel_size=3)), SOUND, (2, 39, 16), 10),
    "in another norm": (lambda: hf.PatchTSTModel(hf.PatchTSTConfig(
        d_model=16, num_attention_heads=2, num_hidden_layers=1, ffn_dim=8, num_input_channels=2,
        context_length=32, patch_length=4, patch_stride=4)), torch.randn(1, 32, 2), (2, 8, 16), 2),
    "in a mixer": (lambda: hf.Mamba2Model(hf.Mamba2Config(
        hidden_size=16, num_hidden_layers=2, vocab_size=50, num_heads=4, head_dim=8, n_groups=1)),
        WORDS, (2, 7, 16), 2),
    "in a mixer, last": (lambda: hf.FalconMambaModel(hf.FalconMambaConfig(
        hidden_size=16, num_hidden_layers=2, vocab_size=50, state_size=4)),
            WORDS, (2, 7, 16), 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", NORMS)
@torch.no_grad()
def test_the_default_places_are_the_norms_of_tokens(kind: str) -> None:
    build, x, shape, count = NORMS[kind]
    model, seen = osm.apply(build().eval(), "layernorm"), set()
    places = [m for m in model.modules() if isinstance(m, osm.LayerNorm)]
    for place in places:
        place.register_forward_hook(lambda m, args, out: seen.add(tuple(args[0].shape)))
    assert model(x)[0].isfinite().all() and len(places) == count and seen == {shape}
    if "in a mixer" not in kind:  # which is causal
        osm.apply(osm.remove(model), "pairnorm")  # needs no number of channels
        assert sum(isinstance(m, osm.PairNorm) for m in model.modules()) == count


SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}


class Median(osm.Inside):
    """Knows nothing of masks."""

    def forward(self, mixed: Tensor, v: Tensor, context: osm.Context) -> Tensor:
        return mixed - v.median(dim=-2, keepdim=True).values


@torch.no_grad()
def test_an_aggregator_without_masks_sees_no_padding_either() -> None:
    model = made(bert, Median)
    found = model(WORDS, attention_mask=PADDED[1:].expand(2, -1))[0]
    torch.testing.assert_close(found[:, :5], model(WORDS[:, :5])[0], **EXACT)
    with pytest.raises(InputError, match="^aggregator Median"):
        made(gpt2, Median)


@pytest.mark.parametrize("position", [*BERT.layout.places])
@torch.no_grad()
def test_the_repos_bert_is_an_applied_one(position: str) -> None:
    """Equal bit by bit, at each of the positions of ContraNorm's code."""
    aggregators = [centered, partial(osm.ContraNorm, scale=0.3)]
    sizes = {"depth": 2, "dim": 16, "heads": 2, "ffn": 32, "vocabulary": 50, "dropout": 0.0}
    own = BERT(aggregators, weights="none", position=position, **sizes).double().eval()
    plain = hf.BertModel(own.network.config).double().eval()
    osm.apply(plain, aggregators, where=position).load_state_dict(own.network.state_dict())
    expected = own(WORDS, torch.ones_like(WORDS), torch.zeros_like(WORDS))
    assert torch.equal(plain(WORDS).pooler_output, expected)


@torch.no_grad()
def test_centered_attention_is_the_explicit_matrix() -> None:
    model = made(bert, partial(osm.Centered, gamma=-1.0), blocks=[0])
    attention = model.encoder.layer[0].attention.self
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    q, k, v = (getattr(attention, n)(x).unflatten(-1, (2, 8)).transpose(1, 2)
               for n in ("query", "key", "value"))  # fmt: skip
    matrix = (q @ k.mT / 8**0.5).softmax(-1) - torch.ones(7, 7, dtype=x.dtype) / 7
    expected = (matrix @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention(x)[0], expected, **EXACT)


def without_dropout(*aggregators) -> nn.Module:
    model = made(bert, *aggregators).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@torch.no_grad()
def test_masks_of_minus_ten_thousand_hide_padding() -> None:
    """As in transformers' MarkupLM."""
    sizes = {k: v for k, v in SMALL.items() if k != "head_dim"} | {"intermediate_size": 32}
    config = hf.MarkupLMConfig(**sizes, max_depth=4)
    torch.manual_seed(0)
    model = hf.MarkupLMModel(config).double().eval()
    osm.apply(model, "centered")
    padded = model(WORDS, attention_mask=PADDED)[0][1, :5]
    alone = model(WORDS[1:, :5], attention_mask=PADDED[1:, :5])[0][0]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-5)


@torch.no_grad()
def test_without_a_mask_eager_attention_sees_all_tokens() -> None:
    """Also if the attention does not say whether it is causal."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 50}
    model = hf.SplinterModel(hf.SplinterConfig(**sizes, intermediate_size=8)).double().eval()
    osm.apply(model, "centered")
    padded = model(WORDS, attention_mask=PADDED)[0][1, :5]
    alone = model(WORDS[1:, :5])[0][0]
    torch.testing.assert_close(padded, alone, **EXACT)


def clip() -> hf.CLIPModel:
    sizes = {k: v for k, v in SMALL.items() if k in ("hidden_size", "num_hidden_layers")}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 32}
    special = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 49, "pad_token_id": 0}
    vision = {**sizes, "image_size": 32, "patch_size": 8}
    text = {**sizes, **special}
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision))


@torch.no_grad()
def test_the_two_towers_of_clip_are_told_apart() -> None:
    """The text is causal and may be padded; the image is neither."""
    layers = "encoder.layers.*.mlp"
    with pytest.raises(InputError, match="^aggregator PairNorm"):
        osm.apply(made(clip), "pairnorm", where=f"text_model.{layers}")
    model = made(clip, osm.PairNorm, where=f"vision_model.{layers}")
    image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    found = model(input_ids=WORDS, pixel_values=image, attention_mask=PADDED)
    alone = model.get_image_features(pixel_values=image).pooler_output
    torch.testing.assert_close(found.vision_model_output.pooler_output, alone, **EXACT)
    plain = osm.remove(model).get_image_features(pixel_values=image).pooler_output
    assert not torch.allclose(alone, plain)


def test_a_repeated_call_has_its_own_padding_or_is_refused() -> None:
    """Calls without gradients in between do not count; of two calls it is not known which one."""
    plain, model = (without_dropout(centered, Push) for _ in range(2))
    weight = model.encoder.layer[0].attention.self.value.weight

    def loss(mask: Tensor) -> Tensor:
        return model(WORDS, attention_mask=mask)[0].square().sum()

    before = loss(PADDED.flip(0))
    before.backward()  # it is over, although its graph is kept
    model.gradient_checkpointing_enable({"use_reentrant": False})
    plain(WORDS, attention_mask=PADDED)[0].square().sum().backward()
    expected = plain.encoder.layer[0].attention.self.value.weight.grad
    out = loss(PADDED)
    with torch.no_grad():
        loss(PADDED.flip(0))
    torch.testing.assert_close(torch.autograd.grad(out, weight)[0], expected, **EXACT)
    with pytest.raises(InputError, match="^attention_mask or batch: "):
        (loss(PADDED) + loss(PADDED.flip(0))).backward()
    torch.testing.assert_close(torch.autograd.grad(loss(PADDED), weight)[0], expected, **EXACT)


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


@pytest.mark.parametrize("method", ["contranorm", "pairnorm", "centered"])
@torch.no_grad()
def test_a_mask_that_the_model_shortens_is_followed(method: str) -> None:
    sound, mask = SOUND.double(), torch.ones(2, 400).long()
    mask[1, 205:] = sound[1, 205:] = 0
    model = hf.Wav2Vec2Model(hf.Wav2Vec2Config(**AUDIO)).double().eval()
    osm.apply(model, method)
    alone = model(sound[1:, :205])[0]
    padded = model(sound, attention_mask=mask)[0][1:, : alone.shape[1]]
    torch.testing.assert_close(padded, alone, **EXACT)
