"""Weights: the right ones, or one line."""

import argparse
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.store import files

TINY = "deit_tiny_patch16_224"
HUB = "huggingface_hub."


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """Random weights of DeiT-Ti with its classifier."""
    torch.manual_seed(7)
    return timm.create_model(TINY).state_dict()


def loaded(weights: object, name: str = TINY, sha256: str | None = None) -> dict[str, Tensor]:
    return ViT([], name, str(weights), sha256).network.state_dict()


def refused(match: str, *arguments: object, **options: object) -> None:
    with pytest.raises(InputError, match=match) as caught:
        loaded(*arguments, **options)
    assert "\n" not in str(caught.value)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


def test_the_real_weights(data_root: Path) -> None:
    path = data_root / "weights/deit_tiny_patch16_224.timm.pth"
    if not path.exists():
        pytest.skip("no weights")
    own = loaded(path, sha256="a57b0314")
    published = torch.load(path, weights_only=True)
    assert same(own, published) and published.keys() - own.keys() == {"head.weight", "head.bias"}
    refused(r"of another architecture: .*expected deit_small", path, name="deit_small_patch16_224")
    refused(r"expected SHA-256 a57b0315, got a57b0314", path, sha256="a57b0315")


@pytest.mark.parametrize("wrap", [None, "model", "state_dict"])
def test_torch_files_bare_or_wrapped(wrap: str | None, state: dict, tmp_path: Path) -> None:
    torch.save({wrap: state, "epoch": 3} if wrap else state, tmp_path / "w.pth")
    assert same(loaded(tmp_path / "w.pth"), state)


def test_safetensors(state: dict, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(state, path)
    assert same(loaded(path, sha256=files.sha256(path)), state)
    path.write_bytes(path.read_bytes()[:-1000])
    refused("w.safetensors: truncated", path)


def test_layer_scales_in_deits_naming(tmp_path: Path) -> None:
    name = "deit3_small_patch16_224"
    state = timm.create_model(name).state_dict()
    renamed = {}
    for key, value in state.items():
        for i in "12":
            key = key.replace(f"ls{i}.gamma", f"gamma_{i}")
        renamed[key] = value
    assert "blocks.0.gamma_1" in renamed
    torch.save({"model": renamed}, tmp_path / "w.pth")
    assert same(
        loaded(tmp_path / "w.pth", name), {k: v for k, v in state.items() if "head" not in k}
    )


def test_no_code_is_run(state: dict, tmp_path: Path) -> None:
    torch.save({"model": state, "args": argparse.Namespace(lr=1)}, tmp_path / "w.pth")
    refused(
        r"w\.pth: refused, because unpickling argparse\.Namespace.*torch\.save", tmp_path / "w.pth"
    )


def test_files_that_are_no_weights(state: dict, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    for content in (b"", b"<html>404</html>", b"hello, no weights here" * 9):
        path.write_bytes(content)
        refused(r"w\.pth: truncated, or not a weights file", path)
    torch.save(state, path)
    path.write_bytes(path.read_bytes()[:100_000])
    refused(r"w\.pth: truncated", path)
    for content in ({"epoch": 3}, [1, 2], {}, {"model": 1}):
        torch.save(content, path)
        refused(r"w\.pth: contains no weights", path)


def test_weights_of_another_architecture(state: dict, tmp_path: Path) -> None:
    """Also where timm would stretch them to fit: other patches, other sizes of image."""
    path = tmp_path / "w.pth"
    for name in ("deit_tiny_distilled_patch16_224", "vit_tiny_patch16_384"):
        torch.save(state, path)
        refused(r"another architecture: .*pos_embed is \(1, 197, 192\)", path, name=name)
    torch.save({**state, "patch_embed.proj.weight": torch.zeros(192, 3, 8, 8)}, path)
    refused(r"patch_embed\.proj\.weight is \(192, 3, 8, 8\) for \(192, 3, 16, 16\)", path)
    torch.save({key: value for key, value in state.items() if key != "norm.bias"}, path)
    refused(r"1 missing \(norm\.bias", path)
    torch.save({**state, "extra": torch.zeros(1)}, path)
    refused(r"1 unexpected \(extra", path)
    torch.save({"conv.weight": torch.zeros(1)}, path)
    refused(r"missing \(cls_token, …\); 1 unexpected \(conv\.weight", path)


def test_digests_that_are_none(tmp_path: Path) -> None:
    refused(r"backbone\.sha256: expected 8 to 64 hex digits", "none", sha256="abc")
    assert loaded("none", sha256="a57b0314").keys() == loaded("none").keys()  # nothing to check


def test_missing_files(tmp_path: Path) -> None:
    for sha256 in (None, "a57b0314"):
        refused(r"nowhere\.pth.*expected timm, none", tmp_path / "nowhere.pth", sha256=sha256)
        refused(r"expected timm, none", tmp_path, sha256=sha256)


def test_published_weights(state: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "model.safetensors", []
    save_file(state, path)
    monkeypatch.setattr(HUB + "try_to_load_from_cache", lambda *_: None)

    def download(*words: str) -> str:
        asked.append(words)
        return str(path)

    monkeypatch.setattr(HUB + "get_hf_file_metadata", lambda url: None)
    monkeypatch.setattr(HUB + "hf_hub_download", download)
    assert same(loaded("timm"), state)
    assert asked == [("timm/deit_tiny_patch16_224.fb_in1k", "model.safetensors")]
    refused("expected SHA-256 a57b0314", "timm", sha256="a57b0314")


def test_published_weights_that_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: str) -> str:
        raise OSError("no route\nto host")

    monkeypatch.setattr(HUB + "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(HUB + "get_hf_file_metadata", fail)  # before a download, which retries
    ways = r".*backbone\.weights=PATH.*backbone\.weights=none"
    refused(r"not available \(OSError: no route to host\)" + ways, "timm")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    refused(r"OVERSMOOTHING_OFFLINE=1 forbids downloads" + ways, "timm")
    refused(r"timm publishes no weights" + ways, "timm", name="vit_small_patch16_36x1_224")
