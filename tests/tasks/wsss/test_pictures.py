"""The pictures of task=wsss: panels match their titles, and images are chosen by a rule."""

from types import SimpleNamespace

import numpy as np

from oversmoothing.lab.data.image_set import palette
from oversmoothing.lab.drawing.grid import heat
from oversmoothing.lab.tasks.wsss.pictures import (
    Look,
    distinct_classes,
    draw_looks,
    strongest,
)


def a_look(mask: bool = True, size: tuple[int, int] = (6, 8)) -> Look:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (*size, 3), dtype=np.uint8)
    labels = random.choice(np.array([0, 1, 2, 255], dtype=np.uint8), size)
    cams = random.random((2, *size))
    return Look("a", image, (1, 2), cams, labels, labels // 2 if mask else None, None)


def test_heat_shows_the_maximum_over_classes() -> None:
    look = a_look()
    assert np.array_equal(strongest(look), heat(look.image, np.maximum(*look.cams)))
    none = Look("b", look.image, (), look.cams[:0], look.refined)
    assert np.array_equal(strongest(none), heat(look.image, np.zeros((6, 8))))


def test_a_row_for_each_image_and_no_empty_column() -> None:
    looks = [a_look(mask=False), a_look(), a_look(mask=False, size=(12, 7))]
    figure = draw_looks(looks, ("background", *map(str, range(1, 128))))
    titles = ["image", "CAM", "refined label", "mask"]
    assert [text.get_text() for text in figure.texts] == titles and len(figure.axes) == 3 * 4
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["background", "1", "2", "127", "unsure or unlabelled"]


def test_images_are_chosen_by_the_rule() -> None:
    present = {"a": (1,), "b": (1,), "c": (1, 2), "d": (2,), "e": (3,)}
    data = SimpleNamespace(val=("x", *present), present=present)
    assert distinct_classes(data, 2) == ["a", "c"]
    assert distinct_classes(data, 3) == ["a", "c", "e"]
    assert distinct_classes(data, 4) == ["x", "a", "c", "e"]  # then the first of the others
    assert len(distinct_classes(data, 99)) == 6


def test_palette_is_the_development_kits() -> None:
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 8: (64, 0, 0), 15: (192, 128, 128)}
    known |= {20: (0, 64, 128), 255: (224, 224, 192)}
    assert {label: tuple(palette()[label].tolist()) for label in known} == known
    assert len(np.unique(palette(), axis=0)) == 256
