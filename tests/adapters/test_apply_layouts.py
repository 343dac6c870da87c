"""Aggregators on feature maps and other layouts act as on tokens (B, N, C)."""

from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn

import oversmoothing as osm

B, C, H, W = 2, 6, 3, 4
MAPS: dict[str, tuple[Callable[[], nn.Module], Tensor, Callable[[Tensor], Tensor]]] = {
    "NBC": (lambda: nn.Linear(C, C), torch.randn(H, B, C), lambda x: x.transpose(0, 1)),
    "BCN": (lambda: nn.Conv1d(C, C, 1), torch.randn(B, C, H), lambda x: x.mT),
    "BCHW": (lambda: nn.Conv2d(C, C, 1), torch.randn(B, C, H, W), lambda x: x.flatten(2).mT),
    "BHWC": (lambda: nn.Linear(C, C), torch.randn(B, H, W, C), lambda x: x.flatten(1, 2)),
}


@pytest.mark.parametrize("method", ["contranorm", "pairnorm", "layernorm"])
@pytest.mark.parametrize("layout", MAPS)
def test_a_layout_changes_the_axes_only(layout: str, method: str) -> None:
    build, x, tokens = MAPS[layout]
    model = nn.Sequential(build(), nn.Identity())
    plain = model(x)
    osm.apply(model, method, where="0", layout=layout)
    out = model(x)
    assert out.shape == plain.shape
    expected = model[0].after[0](tokens(plain))
    torch.testing.assert_close(tokens(out), expected, rtol=0, atol=1e-6)
    out.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert torch.equal(osm.remove(model)(x), plain)


@pytest.mark.parametrize(
    ("name", "where", "layout"),
    [("swin_tiny_patch4_window7_224", "layers.*.blocks.*", "BHWC"), ("resnet18", "layer4", "BCHW")],
)
@torch.no_grad()
def test_models_with_feature_maps(name: str, where: str, layout: str) -> None:
    model = timm.create_model(name).eval()
    images = torch.rand(1, 3, 224, 224)
    plain = model(images)
    with pytest.raises(osm.InputError, match=r"where: expected tokens .*; give layout=BCHW or BHW"):
        osm.apply(model, "pairnorm", where=where)(images)
    osm.remove(model)
    osm.apply(model, "contranorm", where=where, layout=layout)
    assert not torch.allclose(model(images), plain)
    assert torch.equal(osm.remove(model)(images), plain)


def test_a_layout_is_that_of_a_pattern() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
    with pytest.raises(osm.InputError, match="layout: the outputs of known blocks .*; leave it"):
        osm.apply(vit, "pairnorm", layout="BHWC")
    with pytest.raises(osm.InputError, match="layout: expected one of BNC, NBC, BCN, .*'BWHC'"):
        osm.apply(vit, "pairnorm", where="blocks.*.mlp", layout="BWHC")
    osm.apply(vit, "pairnorm", where="blocks.*.mlp", layout="BHWC")
    with pytest.raises(osm.InputError, match=r"where: expected BHWC at Mlp, got .*; choose"):
        vit(torch.rand(1, 3, 32, 32))
