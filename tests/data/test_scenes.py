"""Generated scenes: the same every time, right masks, and no colour that tells the class."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import rgb_to_hsv

from oversmoothing.lab.data import scenes
from oversmoothing.lab.data.scenes import CLASSES

SMALL = {"num_train": 12, "num_val": 4, "size": (48, 64)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def data(cache):
    return scenes.load(cache)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_drawn(data):
    assert (len(data.train), len(data.val), data.classes) == (120, 40, CLASSES)
    sizes = set()
    for id in data.train[:10]:
        mask = data.mask(id)
        sizes.add(tuple(mask.shape))
        assert data.image(id).shape[1:] == mask.shape
        present = set(mask.unique().tolist()) - {0}
        assert {k + 1 for k in data.label(id).nonzero()[:, 0].tolist()} == present
        assert (mask == 0).float().mean() > 0.2
    assert sizes == {(128, 160), (160, 128)}


def test_scenes_hold_one_to_three_classes_all_of_them_often(data):
    labels = torch.stack([data.label(id) for id in data.train + data.val])
    assert set(labels.sum(1).tolist()) == {1, 2, 3}
    assert (labels.mean(0) > 0.2).all()


def test_the_same_arguments_give_the_same_files(tmp_path):
    a, b = scenes.load(str(tmp_path / "a"), **SMALL), scenes.load(str(tmp_path / "b"), **SMALL)
    assert a.checksum == b.checksum
    assert files(tmp_path / "a/scenes") == files(tmp_path / "b/scenes")
    others = [{"seed": 1}, {"size": (64, 48)}, {"num_val": 5}]
    checksums = {scenes.load(str(tmp_path / "a"), **SMALL | other).checksum for other in others}
    assert len(checksums | {a.checksum}) == 4


def test_they_are_drawn_once(tmp_path, monkeypatch):
    first = scenes.load(str(tmp_path), **SMALL)
    monkeypatch.setattr(scenes, "scene", None)
    assert scenes.load(str(tmp_path), **SMALL).checksum == first.checksum


def test_colour_alone_does_not_tell(data):
    """Nearest class mean of the mean colour of a thing: little better than chance, 1 in 5."""
    colours, labels = [], []
    for id in data.train + data.val:
        image, mask = data.image(id).float(), data.mask(id)
        for k in data.present[id]:
            colours.append(image[:, mask == k].mean(1))
            labels.append(k - 1)
    x, y = torch.stack(colours), torch.tensor(labels)
    half = len(y) // 2
    means = torch.stack([x[:half][y[:half] == k].mean(0) for k in range(5)])
    guess = torch.cdist(x[half:], means).argmin(1)
    assert (guess == y[half:]).float().mean() < 0.4


def test_easy_scenes_have_a_hue_a_class(tmp_path):
    data = scenes.load(str(tmp_path), **SMALL, easy=True)
    assert data.checksum != scenes.load(str(tmp_path), **SMALL).checksum
    hues = {k: [] for k in range(1, 1 + len(CLASSES))}
    for id in data.train:
        image, mask = data.image(id).permute(1, 2, 0).numpy() / 255, data.mask(id).numpy()
        for k in set(mask[mask > 0].tolist()):
            hues[k].append(2 * np.pi * np.median(rgb_to_hsv(image[mask == k])[:, 0]))
    for k, found in hues.items():
        assert np.cos(np.array(found) - 2 * np.pi * (k - 1) / len(CLASSES)).min() > 0.85
