"""The tokens of a layer lie along the right axis, whatever the layer returns beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers as hf
from diagnosed import IDS, T5, Blocks, bert, draw, encoder
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.prefix import prefix_of


def cosines(model: nn.Module, x: Tensor, tokens: Callable[[Tensor], Tensor]) -> list[float]:
    """Mean cosines of the tokens (B, N, C) of each block."""
    with torch.no_grad():
        outputs = [block(x) for block in model.eval().blocks]
    found = [out[0] if isinstance(out, tuple) else out for out in outputs]
    return [osm.metrics.cosine(tokens(x)).mean().item() for x in found]


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU())


@pytest.mark.parametrize("N", [5, 8])
def test_positions_of_one_dimensional_convolutions(N: int) -> None:
    x = draw(3, 8, N)
    for build in (lambda: nn.Conv1d(8, 8, 3, padding=1), convolution):
        model, beside_others = Blocks(build=build), build is convolution and N == 8
        if beside_others:
            with pytest.raises(osm.InputError, match="^layout: "):
                osm.diagnose(model, x)
        report = osm.diagnose(model, x, layout="BCN" if beside_others else None)
        assert report.tokens == (N, N) and report["cosine"] == cosines(model, x, lambda x: x.mT)


@pytest.mark.parametrize("batch_first", [True, False])
def test_positions_of_recurrent_layers(batch_first: bool) -> None:
    model = Blocks(build=lambda: nn.LSTM(6, 6, batch_first=batch_first))
    x = draw(3, 5, 6) if batch_first else draw(5, 3, 6)
    report = osm.diagnose(model, x)
    tokens = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    assert report.samples == 3 and report.tokens == (5, 5)
    assert report["cosine"] == pytest.approx(cosines(model, x, tokens), rel=1e-12)


@dataclass
class Output:
    """What a layer returns."""

    other: Tensor
    tokens: Tensor


def test_what_a_layer_returns_beside_its_tokens_is_passed_over() -> None:
    """A block of TNT returns pixels (B·N, n, c) before patches; others return their map first."""
    model, x = Blocks(lambda x: x), draw(3, 5, 8)
    expected = osm.diagnose(model, x).values
    for change in (
        lambda x: (torch.rand(15, 4, 2), x),
        lambda x: (torch.rand(3, 2, 5, 5), x),
        lambda x: (None, [x]),
        lambda x: {"other": x[0], "last_hidden_state": x},
        lambda x: Output(x[0], x),
    ):
        for block in model.blocks:
            block.change = change
        assert osm.diagnose(model, x).values == expected


@pytest.mark.parametrize("shared", [(1, 2), (3, 1), (1, 1)], ids=str)
def test_maps_of_keys_that_samples_or_heads_share(shared: tuple[int, int]) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key = nn.Parameter(torch.randn(*shared, 5, 4))

        def forward(self, x: Tensor) -> Tensor:
            q = x.unflatten(-1, (2, 4)).transpose(1, 2)
            key = self.key if shared[1] == 2 else self.key.expand(-1, 2, -1, -1)
            return F.scaled_dot_product_attention(q, key, q).transpose(1, 2).flatten(2)

    model, x = Blocks(build=Attention), draw(3, 5, 8)
    found = osm.diagnose(model, x)["attention_similarity"][0]
    q = x.double().unflatten(-1, (2, 4)).transpose(1, 2)
    A = (q @ model.blocks[0].key.detach().double().mT / 2).softmax(-1)
    assert found == pytest.approx(osm.metrics.cosine(A).mean().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "side", "options", "patches", "layers"),
    [
        ("crossvit_tiny_240", 48, {"img_scale": (1.0, 0.75)}, 16, "blocks.0.blocks.0.0"),
        ("crossvit_tiny_240", 48, {"img_scale": (1.0, 0.75)}, 4, "blocks.0.blocks.1.0"),
        ("convit_tiny", 32, {"depth": 4, "local_up_to_layer": 2}, 4, None),
        ("coat_lite_tiny", 64, {}, 256, None),
    ],
)
def test_class_tokens_of_branches_late_blocks_and_stages(
    name: str, side: int, options: dict, patches: int, layers: str | None
) -> None:
    model = timm.create_model(name, img_size=(side, side), **options)
    images = torch.rand(1, 3, side, side)
    report = osm.diagnose(model, images, layers=layers, metrics=["cosine"])
    assert report.tokens == (patches, patches)
    if name == "convit_tiny":
        assert [prefix_of(model, name) for name in report.layers] == [0, 0, 1, 1]


SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 8}
DECODER = {f"decoder_{key}": value for key, value in SIZES.items()}
SIZES |= {"image_size": 32, "patch_size": 8}
TIMM: dict[str, Any] = {"img_size": 32, "depth": 1, "embed_dim": 12, "num_heads": 2}
MOBILE: dict[str, Any] = {"hidden_sizes": [8, 12, 16], "neck_hidden_sizes": [8] * 6 + [16]}
IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
CLIPS = torch.rand(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))

# a model, and for some of its layers: leading and trailing tokens that are no patches, and parts
MODELS: dict[str, tuple] = {
    "registers": (
        lambda: timm.create_model("vit_small_patch14_reg4_dinov2", patch_size=8, **TIMM),
        {"patch_embed": (0, 0, 1), "blocks.0": (5, 0, 1)},
    ),
    "vit": (
        lambda: hf.ViTModel(hf.ViTConfig(**SIZES)),
        {"embeddings.patch_embeddings": (0, 0, 1), "embeddings": (1, 0, 1), "layers.0": (1, 0, 1)},
    ),
    "mae": (
        lambda: hf.ViTMAEForPreTraining(
            hf.ViTMAEConfig(**SIZES, mask_ratio=0.0, **DECODER)
        ),
        {"vit.layers.0": (1, 0, 1), "decoder.decoder_layers.0": (1, 0, 1)},
    ),
    "yolos": (
        lambda: hf.YolosModel(
            hf.YolosConfig(**SIZES | {"image_size": [32, 32]}, num_detection_tokens=5)
        ),
        {"embeddings.patch_embeddings": (0, 0, 1), "encoder.layer.0": (1, 5, 1)},
    ),
    "torchvision": (
        lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 8, 8),
        {"encoder.layers.encoder_layer_0": (1, 0, 1)},
    ),
    "tnt": (
        lambda: timm.create_model("tnt_s_legacy_patch16_224", img_size=32, depth=1),
        {"pixel_embed": (0, 0, 4), "blocks.0.attn_in": (0, 0, 4), "blocks.0.attn_out": (1, 0, 1)},
    ),
    "timesformer": (
        lambda: hf.TimesformerModel(hf.TimesformerConfig(**SIZES, num_frames=3)),
        {
            "encoder.layer.0": (1, 0, 1),
            "encoder.layer.0.temporal_attention": (0, 0, 16),
            "encoder.layer.0.temporal_dense": (0, 0, 1),
            "encoder.layer.0.attention": (1, 0, 3),
        },
    ),
    "swin": (
        lambda: timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=32, window_size=4, depths=(1, 1), embed_dim=12
        ),
        {"layers.0.blocks.0.attn": (0, 0, 4)},
    ),
    "mobilevit": (
        lambda: hf.MobileViTModel(
            hf.MobileViTConfig(**MOBILE, image_size=32, patch_size=2, num_attention_heads=4)
        ),
        {"encoder.layer.2.transformer.layer.0": (0, 0, 4)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_patches_of_an_input_are_measured_in_every_layer(name: str) -> None:
    torch.manual_seed(0)
    build, layers = MODELS[name]
    model, inputs = build().eval(), [CLIPS if name == "timesformer" else IMAGES]
    if name == "mae":
        inputs.append(torch.rand(2, 16))  # noise that orders the patches
    report = osm.diagnose(model, *inputs, layers=list(layers))
    seen: list[Tensor] = []
    for layer in layers:
        model.get_submodule(layer).register_forward_hook(lambda _, __, out: seen.append(out))
    model(*inputs)
    outputs = [out if isinstance(out, Tensor) else out[0] for out in seen]
    for i, (x, layer) in enumerate(zip(outputs, report.layers)):
        prefix, suffix, parts = layers[layer]
        patches = x[:, prefix : x.shape[1] - suffix].reshape(len(x) // parts, -1, x.shape[2])
        cosine = osm.metrics.cosine(patches)
        assert report.counts["cosine"][i] == len(cosine) == 2, layer
        assert report["cosine"][i] == pytest.approx(cosine.mean().item(), abs=1e-6)
    several = len({of[:2] for of in layers.values()}) > 1
    assert ("in 1 of" in str(report) or "in 2 of" in str(report)) == several


def test_windows_of_a_batch_equal_those_of_single_images() -> None:
    torch.manual_seed(0)
    build, layers = MODELS["mobilevit"]
    model = build()
    together = osm.diagnose(model, IMAGES, layers=list(layers))
    alone = osm.diagnose(model, batches=IMAGES.split(1), layers=list(layers))
    assert together.samples == alone.samples == 2 and together.counts == alone.counts
    for metric in together.values:
        assert together[metric] == pytest.approx(alone[metric], rel=1e-5)


class Windows(nn.Module):
    """A model of no library, which cuts its input into parts of 4 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x.reshape(-1, 4, 8)))


def test_what_cannot_be_known_is_noted() -> None:
    def notes(N: int, **options: Any) -> str:
        return " ".join(osm.diagnose(Windows(), torch.randn(2, N, 8), **options).notes)

    assert "8 samples for 2 inputs" in notes(16) and "cls_token of Windows" in notes(16)
    assert "samples" not in notes(4) and "cls_token" not in notes(4, prefix=0)
    assert notes(4, prefix=1) == "Left out: 1 prefix token."
    model = Windows()  # as PVT, whose last stage has a class token
    model.patch_embed, model.cls_token = nn.ModuleList([Windows()]), None
    found = osm.diagnose(model, torch.randn(2, 4, 8), layers="layers.*")
    assert "cls_token of Windows" in " ".join(found.notes)


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.inner(**inputs)[0]


def ones(*lengths: int, N: int = 7) -> Tensor:
    """A mask of sentences with these lengths."""
    return (torch.arange(N) < torch.tensor(lengths)[:, None]).long()


def test_a_wrapped_model_has_the_masks_of_its_own_parts() -> None:
    """A decoder without a mask has none of its encoder."""
    model = hf.T5Model(hf.T5Config(**T5)).eval()
    mask = ones(5, 5, 5)
    inputs = {"input_ids": IDS, "attention_mask": mask, "decoder_input_ids": IDS}
    report = osm.diagnose(Wrapped(model), **inputs, layers="inner.decoder.block.*")
    assert report.tokens == (7, 7)
    inputs["decoder_attention_mask"] = mask.flip(1)
    alone = osm.diagnose(model, **inputs, metrics=["cosine"])
    assert osm.diagnose(Wrapped(model), **inputs, metrics=["cosine"]).values == alone.values


def test_the_mask_of_a_text_is_none_of_the_images_beside_it() -> None:
    """The text has as many words as the image has patches and CLS."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    sizes["intermediate_size"] = 16
    text = sizes | {"vocab_size": 50, "eos_token_id": 2}
    vision = sizes | {"image_size": 32, "patch_size": 8}
    model = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision)).eval()
    inputs = {"input_ids": torch.randint(3, 50, (2, 17)), "pixel_values": torch.rand(2, 3, 32, 32)}
    both, image = (
        osm.diagnose(model, **inputs, **more, metrics=["cosine"], layers="vision_model.*.layers.*")
        for more in ({"attention_mask": ones(5, 5, N=17)}, {})
    )
    assert both.values == image.values


class Classifier(Wrapped):
    """A model around another one, whose mask has another name and place."""

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        words = batch["words"]
        if isinstance(self.inner, nn.TransformerEncoder):
            return self.inner(words, src_key_padding_mask=batch["real"] == 0)
        return self.inner(inputs_embeds=words, attention_mask=batch["real"])[0]


@pytest.mark.parametrize("build", [bert, encoder])
def test_the_mask_that_an_inner_model_gets_counts(build: Callable[[], nn.Module]) -> None:
    real = ones(4, 4, 4)
    model, batch = Classifier(build()), {"words": draw(3, 7, 16), "real": real}
    found = osm.diagnose(model, batches=[(batch,)])
    assert found.tokens == (4, 4) and found.notes == ("Left out: padding.",)
    assert found.values == osm.diagnose(model, batches=[(batch,)], mask=real).values


def test_masks_of_prompt_and_prefix_tuning() -> None:
    """PEFT gives floats of zeros and ones, or a mask that covers the tokens of a cache as well."""
    mask = ones(4, 7, 7)
    found = osm.diagnose(bert(), input_ids=IDS, attention_mask=mask.float())
    expected = osm.diagnose(bert(), input_ids=IDS, attention_mask=mask)
    assert found.tokens == (4, 7) and found.values == expected.values
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 20}
    model = hf.GPT2Model(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    with torch.no_grad():
        cache = model(IDS[:, :3]).past_key_values
    inputs = {"input_ids": IDS[:, 3:], "attention_mask": ones(5, 7, 7), "past_key_values": cache}
    assert osm.diagnose(model, **inputs).tokens == (2, 4)


def test_tokens_that_a_model_adds_are_noted_and_can_be_left_out() -> None:
    """As the padding of Longformer's windows, and the prompt of CPM-Ant."""

    class Prompted(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.cat([x, torch.ones_like(x)], dim=1))

    model, x = Prompted(), draw(3, 5, 8)
    assert "10 tokens for 5" in " ".join(osm.diagnose(model, x).notes)
    only = osm.diagnose(model, x, mask=(torch.arange(10) < 5).expand(3, -1))
    assert only.tokens == (5, 5) and not any("tokens for" in note for note in only.notes)
