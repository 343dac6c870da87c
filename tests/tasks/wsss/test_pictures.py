"""Pictures: colours are VOC's, panels are what they say, and no picture ends a run."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from oversmoothing.data.images.files import write_mask
from oversmoothing.drawing.tokens import token_rows
from oversmoothing.errors import InputError
from oversmoothing.papers.token_figures import write_tokens
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.wsss.look import Look, distinct_classes
from oversmoothing.tasks.wsss.panels import coloured, columns_of, heat, labels_in, strongest
from oversmoothing.tasks.wsss.pictures import draw_grid, leave_pictures, save

CLASSES = ("disc", "star")


def a_look(mask: bool = True, size: tuple[int, int] = (6, 8)) -> Look:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (*size, 3), dtype=np.uint8)
    labels = random.choice(np.array([0, 1, 2, 255], dtype=np.uint8), size)
    cams = random.random((2, *size))
    return Look("a", image, (1, 2), cams, labels, labels // 2 if mask else None, None)


def test_colours_are_those_of_the_palette_png(tmp_path: Path) -> None:
    labels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    write_mask(tmp_path / "mask.png", labels)
    with Image.open(tmp_path / "mask.png") as image:
        assert np.array_equal(np.array(image.convert("RGB")), coloured(labels))
    assert coloured(np.uint8([[0, 1, 2, 255]])).tolist() == [
        [[0, 0, 0], [128, 0, 0], [0, 128, 0], [224, 224, 192]]
    ]


def test_heat_shows_the_maximum_over_classes() -> None:
    look = a_look()
    assert np.array_equal(strongest(look), heat(look.image, np.maximum(*look.cams)))
    none = Look("b", look.image, (), look.cams[:0], look.refined)
    assert np.array_equal(strongest(none), heat(look.image, np.zeros((6, 8))))


def test_columns_without_content_are_left_out() -> None:
    titles = [title for title, _ in columns_of([a_look(mask=False)])]
    assert titles == ["image", "CAM", "refined label"]
    both = columns_of([a_look(mask=False), a_look()])
    assert [title for title, _ in both][-1] == "mask" and both[-1][1][0] is None
    assert labels_in([a_look()]) == [0, 1, 2, 127, 255]


def test_legend_names_what_is_shown_and_files_are_reproducible(tmp_path: Path) -> None:
    looks = [a_look(mask=False), a_look(mask=False, size=(12, 7))]
    figures = [draw_grid(columns_of(looks), labels_in(looks), CLASSES) for _ in range(2)]
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert names == ["background", "disc", "star", "unsure or unlabelled"]
    first, second = (save(figure, tmp_path / str(i)) for i, figure in enumerate(figures))
    assert [path.suffix for path in first] == [".png", ".pdf"]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, second)] == [True, True]


def test_images_are_chosen_by_the_rule() -> None:
    present = {"a": (1,), "b": (1,), "c": (1, 2), "d": (2,), "e": (3,)}
    data = SimpleNamespace(val=("x", *present), present=present)
    assert distinct_classes(data, 2) == ["a", "c"]
    assert distinct_classes(data, 3) == ["a", "c", "e"]
    assert distinct_classes(data, 4) == ["x", "a", "c", "e"]  # then the first of the others
    assert len(distinct_classes(data, 99)) == 6


def seeds(depth: int = 3, shifts: tuple[float, ...] = (0.0, 0.2)) -> list[dict]:
    blocks = np.linspace(0.1, 0.5, depth)
    moment = [{"cosine": list(blocks + s), "effective_rank": list(9 - blocks + s)} for s in shifts]
    return [{"layers_before": layers, "layers_after": layers} for layers in moment]


def test_token_data_are_means_over_seeds(tmp_path: Path) -> None:
    results = {"γ = 0": seeds(), "γ = −1": seeds()[:1]}
    rows = token_rows(results)
    assert len(rows) == 2 * 2 * 2 * 3
    first, single = rows[0], rows[12]
    assert first["mean"] == pytest.approx(0.2) and first["std"] == pytest.approx(0.2 / 2**0.5)
    assert (first["label"], first["moment"], first["block"], first["seeds"]) == (
        "γ = 0", "before", 0, 2)  # fmt: skip
    assert single["std"] is None and single["mean"] == pytest.approx(0.1)
    paths = write_tokens(results, tmp_path / "wsss_tokens")
    assert [path.name for path in paths] == [f"wsss_tokens.{k}" for k in ("png", "pdf", "csv")]
    lines = paths[-1].read_text().splitlines()
    assert lines[0] == "label,moment,metric,block,mean,std,seeds" and len(lines) == 25


def test_token_data_that_do_not_go_together_are_refused() -> None:
    for wrong in ([{}], [*seeds(3), *seeds(4)]):
        with pytest.raises(InputError, match="tokens of x: .*expected results of task=wsss"):
            token_rows({"x": wrong})


def test_a_picture_that_fails_is_a_warning(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leave_pictures(SimpleNamespace(), run, 0, {})
    assert [str(w.message).split(":")[0] for w in caught] == [
        "no pictures of seed 0 (AttributeError"
    ]
