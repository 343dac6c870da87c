"""Digits and crops of scenes: splits that stay, images that show what their class says."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from oversmoothing.lab.data import digits, scenes
from oversmoothing.lab.data.scenes import CLASSES


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Made-up digits in scikit-learn's place."""
    random = np.random.default_rng(0)
    images = random.integers(0, 17, (1797, 8, 8)).astype(float)
    targets = np.arange(1797) % 10
    module = types.ModuleType("sklearn.datasets")
    module.load_digits = lambda: types.SimpleNamespace(images=images, target=targets)
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)
    return images


def test_digits_are_split_once_and_for_all(bundled: np.ndarray) -> None:
    data = digits.load()
    assert (len(data.train), len(data.val)) == (1437, 360)
    assert len({*data.train, *data.val}) == 1797
    assert data.val[:3] == ("digit_0000", "digit_0001", "digit_0007")  # pinned
    counts = np.bincount([data.target(id) for id in data.val])
    assert len(counts) == 10 and counts.min() > 20


def test_digits_keep_their_pixels(bundled: np.ndarray) -> None:
    own = digits.load(size=8)
    expected = torch.from_numpy(bundled[7] * 255 / 16).round().byte()
    assert torch.equal(own.image("digit_0007"), expected.expand(3, 8, 8))
    assert digits.load().image("digit_0007").shape == (3, 32, 32)
    assert own.target("digit_0007") == 7 and own.checksum != digits.load().checksum


def crops(cache: Path, **options: object):
    return scenes.load_crops(str(cache), **{"num_train": 30, "num_val": 10, **options})


def test_crops_are_the_same_again_from_their_file_and_without(tmp_path: Path) -> None:
    first, again, anew = crops(tmp_path), crops(tmp_path), crops(tmp_path / "other")
    for id in (*first.train, *first.val):
        assert torch.equal(first.image(id), again.image(id))
        assert torch.equal(first.image(id), anew.image(id))
    assert first.checksum == anew.checksum != crops(tmp_path, seed=1).checksum


def test_easy_crops_have_the_hue_of_their_class(tmp_path: Path) -> None:
    """The middle of a crop is the thing itself."""
    data = crops(tmp_path, easy=True, num_train=60)
    middle = {id: data.image(id)[:, 12:20, 12:20].double().mean(dim=(1, 2)) for id in data.train}
    reds = {"disc": [], "ellipse": []}  # hues 0 and 0.6: red and blue
    for id in data.train:
        if (name := CLASSES[data.target(id)]) in reds:
            reds[name].append(float(middle[id][0] - middle[id][2]))
    assert np.median(reds["disc"]) > 30 and np.median(reds["ellipse"]) < -30
