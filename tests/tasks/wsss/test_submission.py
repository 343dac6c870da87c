"""The submission file: its content, and refusals."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import palette
from oversmoothing.lab.tasks.wsss.export import write_submission

INSIDE = "results/VOC2012/Segmentation/comp6_test_cls"
SIZES = {"a": (7, 9)}


def labels(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 21, (7, 9), dtype=np.uint8)


def test_palette_is_the_development_kits() -> None:
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 8: (64, 0, 0), 15: (192, 128, 128)}
    known |= {20: (0, 64, 128), 255: (224, 224, 192)}
    assert {label: tuple(palette()[label].tolist()) for label in known} == known
    assert len(np.unique(palette(), axis=0)) == 256


def test_palette_is_that_of_the_real_masks(data_root: Path) -> None:
    """A PNG without a palette is grey; those of VOC itself carry one."""
    for path in sorted((data_root / "VOC2012").rglob("*.png"))[:200]:
        image = Image.open(path)
        if image.mode == "P":
            theirs = np.array(image.getpalette()).reshape(-1, 3)
            used = np.unique(np.asarray(image))
            np.testing.assert_array_equal(theirs[used], palette()[used])
            return
    pytest.skip("no mask with a palette")


def test_unzips_to_what_was_written(tmp_path: Path) -> None:
    items = {"2008_000006": labels(0), "2008_000011": labels(1)}
    path = write_submission(tmp_path / "new", items.items(), dict.fromkeys(items, (7, 9)))
    assert path == tmp_path / "new" / "comp6_test.zip" and list(path.parent.iterdir()) == [path]
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [f"{INSIDE}/{name}.png" for name in items]
        for name, written in items.items():
            image = Image.open(io.BytesIO(archive.read(f"{INSIDE}/{name}.png")))
            assert image.mode == "P" and image.size == (9, 7)
            assert image.getpalette() == palette().flatten().tolist()
            np.testing.assert_array_equal(np.asarray(image), written)


def test_equal_predictions_make_equal_files(tmp_path: Path) -> None:
    one, two = (write_submission(tmp_path / f, [("a", labels())], SIZES, "val") for f in "xy")
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "1 of 1 images have no prediction, first a"),
        ([("a", labels()), ("a", labels())], "a: predicted twice"),
        ([("a", labels().astype(int))], "a: .*int64"),
        ([("a", labels()[None])], r"a: .*\(1, 7, 9\)"),
        ([("a", labels() + 100)], "a: .*0 to 20"),
    ],
)
def test_refuses_what_the_server_would(
    tmp_path: Path, items: list[tuple[str, np.ndarray]], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        write_submission(tmp_path, items, SIZES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"a": (9, 7)}, r"a: prediction \(7, 9\) and image \(9, 7\)"),
        ({"b": (7, 9)}, "a: not an image of this split"),
        ({"a": (7, 9), "b": (7, 9)}, "1 of 2 images .* b"),
    ],
)
def test_checks_the_split(tmp_path: Path, sizes: dict[str, tuple[int, int]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_submission(tmp_path, [("a", labels())], sizes)


def test_a_failed_write_leaves_the_last_one(tmp_path: Path) -> None:
    path = write_submission(tmp_path, [("a", labels())], SIZES)
    before = path.read_bytes()
    with pytest.raises(InputError):
        write_submission(tmp_path, [("a", labels()), ("a", labels())], SIZES)
    assert path.read_bytes() == before
