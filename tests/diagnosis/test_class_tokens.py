"""What is a sample, and which of its tokens are patches, in every layer."""

from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.prefix import prefix_of


def test_every_branch_of_crossvit_has_a_class_token() -> None:
    model = timm.create_model("crossvit_tiny_240", img_size=(48, 48), img_scale=(1.0, 0.75))
    for branch, patches in (("blocks.0.blocks.0.0", 16), ("blocks.0.blocks.1.0", 4)):
        report = osm.diagnose(model, torch.rand(1, 3, 48, 48), layers=[branch], metrics=["cosine"])
        assert report.tokens == (patches, patches)


def test_the_class_token_of_convit_comes_in_a_late_block() -> None:
    model = timm.create_model("convit_tiny", img_size=32, depth=4, local_up_to_layer=2)
    report = osm.diagnose(model, torch.rand(1, 3, 32, 32), metrics=["cosine"])
    assert report.tokens == (4, 4)
    assert [prefix_of(model, name) for name in report.layers] == [0, 0, 1, 1]


def test_every_stage_of_coat_has_a_class_token() -> None:
    model = timm.create_model("coat_lite_tiny", img_size=64)
    report = osm.diagnose(model, torch.rand(1, 3, 64, 64), metrics=["cosine"])
    assert report.tokens == (256, 256)


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
        cosine = osm.metrics.mean_cosine(patches)
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
