"""What all figures share: colours, files, tokens by block, and pictures that end no run."""

import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from oversmoothing.lab.data.image_set import write_mask
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.grid import coloured, draw_grid, labels_in
from oversmoothing.lab.drawing.leave import leave
from oversmoothing.lab.drawing.methods import METHODS, styles_of
from oversmoothing.lab.drawing.tokens import token_rows
from oversmoothing.lab.store.run import Recorder


def test_colours_are_those_of_the_palette_png(tmp_path: Path) -> None:
    labels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    write_mask(tmp_path / "mask.png", labels)
    with Image.open(tmp_path / "mask.png") as image:
        assert np.array_equal(np.array(image.convert("RGB")), coloured(labels))
    assert coloured(np.uint8([[0, 1, 2, 255]])).tolist() == [
        [[0, 0, 0], [128, 0, 0], [0, 128, 0], [224, 224, 192]]
    ]


def test_a_method_has_one_colour_and_marker_under_all_its_names() -> None:
    names = {
        "none": ["none", "Vanilla GCN", "plain", "without centering", "γ = 0"],
        "centered": ["centered (w/ Ours)", "centered + LayerNorm", "centered, γ = −1", "γ = −1"],
        "ContraNorm": ["w/ ContraNorm", "ContraNorm+LayerNorm"],
        "residual": ["residual GCN (control)"],
        "GCNII": ["GCNII (control)"],
    }
    for method, labels in names.items():
        pairs = {(style["color"], style["marker"]) for style in styles_of(labels).values()}
        assert pairs == {METHODS[method][:2]}, method
    assert len({style[:2] for style in METHODS.values()}) == len(METHODS)


def grid() -> Figure:
    labels = np.array([[0, 1], [2, 255]], dtype=np.uint8)
    columns = [("image", [coloured(labels)]), ("mask", [None])]
    return draw_grid(columns, labels_in(labels, None), ("background", "disc", "star"))


def test_legend_names_what_is_shown_and_files_are_reproducible(tmp_path: Path) -> None:
    names = [text.get_text() for text in grid().legends[0].get_texts()]
    assert names == ["background", "disc", "star", "unsure or unlabelled"]
    first, second = (save(grid(), tmp_path / name / "grid.v1", pdf=True) for name in "ab")
    assert [path.name for path in first] == ["grid.v1.png", "grid.v1.pdf"]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, second)] == [True, True]
    assert [path.suffix for path in save(grid(), tmp_path / "c")] == [".png"]


def test_a_table_is_compressed_by_its_name_and_without_a_date(tmp_path: Path) -> None:
    rows = [(1, "a,b"), (None, 0.1)]
    plain, packed = (write_csv(tmp_path / name, "xy", rows) for name in ("t.csv", "t.csv.gz"))
    assert plain.read_text() == 'x,y\n1,"a,b"\n,0.1\n'
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes()[4:8] == bytes(4)


def seeds(depth: int = 3, shifts: tuple[float, ...] = (0.0, 0.2)) -> list[dict]:
    blocks = np.linspace(0.1, 0.5, depth)
    moment = [{"cosine": list(blocks + s), "effective_rank": list(9 - blocks + s)} for s in shifts]
    return [{"layers_before": layers, "layers_after": layers} for layers in moment]


def test_token_data_are_means_over_seeds() -> None:
    rows = token_rows({"γ = 0": seeds(), "γ = −1": seeds()[:1]})
    assert len(rows) == 2 * 2 * 2 * 3
    first, single = rows[0], rows[12]
    assert first["mean"] == pytest.approx(0.2) and first["std"] == pytest.approx(0.2 / 2**0.5)
    assert (first["label"], first["moment"], first["block"], first["seeds"]) == (
        "γ = 0", "before", 0, 2)  # fmt: skip
    assert single["std"] is None and single["mean"] == pytest.approx(0.1)


def test_a_picture_that_fails_is_a_warning(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leave(recorder, 0, lambda: {"grid": grid(), "bad": 1 / 0})
    assert [str(w.message) for w in caught] == [
        "no pictures of seed 0 (ZeroDivisionError: division by zero)"
    ]
    leave(recorder, 0, lambda: {"grid": grid()})
    assert (tmp_path / "grid-seed0.png").stat().st_size > 1000
