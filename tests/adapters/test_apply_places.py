"""Methods after the mixing act along the channels of tokens, or the place is refused."""

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.errors import InputError

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
AUDIO = {**SIZES, "intermediate_size": 32, "conv_dim": [8, 8], "conv_stride": [5, 2],
         "conv_kernel": [10, 3], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
         "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}  # fmt: skip


def conformer() -> nn.Module:
    config = hf.Wav2Vec2ConformerConfig(**AUDIO, conv_depthwise_kernel_size=3)
    return hf.Wav2Vec2ConformerModel(config).eval()


def wav2vec2() -> nn.Module:
    return hf.Wav2Vec2Model(hf.Wav2Vec2Config(**AUDIO)).double().eval()


def squeezebert() -> nn.Module:
    config = hf.SqueezeBertConfig(
        **SIZES, intermediate_size=32, embedding_size=16, vocab_size=9, q_groups=1, k_groups=1,
        v_groups=1, post_attention_groups=1, intermediate_groups=1, output_groups=1)  # fmt: skip
    return hf.SqueezeBertModel(config).eval()


@torch.no_grad()
def test_a_batch_norm_is_no_norm_of_tokens() -> None:
    """In a Conformer it gets (B, C, N)."""
    model, seen = osm.apply(conformer(), "layernorm"), set()
    for module in model.modules():
        if isinstance(module, osm.LayerNorm):
            module.register_forward_hook(lambda m, given, out: seen.add(tuple(given[0].shape)))
    assert model(torch.randn(2, 400))[0].isfinite().all() and seen == {(2, 39, 16)}
    assert not hasattr(model.encoder.layers[0].conv_module.batch_norm, "before")


@pytest.mark.parametrize("method", ["layernorm", "pairnorm"])
def test_channels_before_tokens_are_refused(method: str) -> None:
    model = osm.apply(squeezebert(), method)
    with pytest.raises(InputError, match=r"^where: .* have 7 channels, expected 16; .*layout=BCN"):
        model(torch.randint(1, 9, (2, 7)))
    osm.apply(osm.remove(model), method, where="encoder.layers.*.output", layout="BCN")
    assert model(torch.randint(1, 9, (2, 7)))[0].isfinite().all()


@pytest.mark.parametrize("where", [None, "convs.*"])
@torch.no_grad()
def test_the_channels_of_a_convolution_are_those_of_its_output(where: str | None) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(pyg.MixHopConv(16, 8, powers=[0, 1]) for _ in range(2))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for conv in self.convs:
                x = conv(x, edge_index)
            return x

    net, edges = osm.apply(Net(), "layernorm", where=where), torch.tensor([[0, 1], [1, 0]])
    assert net.convs[0].after[0].norm.normalized_shape == (16,)
    assert net(torch.randn(4, 16), edges).shape == (4, 16)


@pytest.mark.parametrize("method", ["contranorm", "pairnorm", "centered"])
@torch.no_grad()
def test_a_mask_that_the_model_shortens_is_followed(method: str) -> None:
    sound, mask = torch.randn(2, 400).double(), torch.ones(2, 400).long()
    mask[1, 205:] = sound[1, 205:] = 0
    model = osm.apply(wav2vec2(), method)
    alone = model(sound[1:, :205])[0]
    padded = model(sound, attention_mask=mask)[0][1:, : alone.shape[1]]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-10)


def jamba() -> nn.Module:
    return hf.JambaModel(hf.JambaConfig(
        **SIZES, intermediate_size=32, num_key_value_heads=1, vocab_size=9, num_experts=1,
        num_experts_per_tok=1, attn_layer_period=2, attn_layer_offset=1,
        use_mamba_kernels=False))  # fmt: skip


def group_vit() -> nn.Module:
    config = hf.GroupViTVisionConfig(
        hidden_size=16, intermediate_size=32, depths=[1, 1, 1], num_attention_heads=2,
        image_size=32, patch_size=8, num_group_tokens=[4, 2, 0],
        num_output_groups=[4, 2, 0])  # fmt: skip
    return hf.GroupViTVisionModel(config)


def without_fused() -> nn.Module:
    model = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32, patch_size=8)
    model.blocks[0].attn.fused_attn = False
    return model


@pytest.mark.parametrize(
    ("build", "method", "way"),
    [
        (jamba, "centered", r"blocks=\[1\]$"),
        (group_vit, "layernorm", "^where: GroupViTStage has no norm of tokens .* pattern"),
        (without_fused, "centered", r"timm\.layers\.set_fused_attn\(True\)"),
    ],
)
def test_a_refusal_names_the_way_out(build, method: str, way: str) -> None:
    with pytest.raises(InputError, match=way):
        osm.apply(build(), method)
