"""Class tokens that come late, or in several branches, are no patches."""

import timm
import torch

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
