"""Dense CRF against an exact mean field, and its parallel processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.wsss import crf
from oversmoothing.lab.tasks.wsss.crf import CRF, crf_labels, dense_crf, load_pydensecrf

try:
    load_pydensecrf()
except InputError:
    pytest.skip("no pydensecrf", allow_module_level=True)


def scene(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns an image of two colours, 12×10, and uncertain probabilities of 4 labels."""
    random = np.random.default_rng(seed)
    left = np.broadcast_to(np.arange(10) < 5, (12, 10))
    colours = np.where(left[..., None], [200, 60, 40], [40, 90, 180])
    image = (colours + random.normal(0, 6, (12, 10, 3))).clip(0, 255).astype(np.uint8)
    logits = random.normal(0, 1, (4, 12, 10))
    logits[0] += left
    logits[1] += ~left
    return image, softmax(logits)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def exact(image: np.ndarray, probabilities: np.ndarray, crf: CRF) -> np.ndarray:
    """The same mean field in float64, with every pair of pixels."""
    C, H, W = probabilities.shape
    position = np.stack(np.mgrid[:H, :W], axis=-1).reshape(-1, 2)
    both = np.hstack([position / crf.bi_xy, image.reshape(-1, 3) / crf.bi_rgb])
    mixing = 0
    for weight, f in ((crf.pos_w, position / crf.pos_xy), (crf.bi_w, both)):
        K = np.exp(-0.5 * ((f[:, None] - f) ** 2).sum(axis=-1))
        scale = K.sum(axis=1) ** -0.5
        mixing = mixing + weight * scale[:, None] * K * scale
    log_p = np.log(probabilities.reshape(C, -1).clip(1e-5, 1))
    Q = softmax(log_p)
    for _ in range(crf.iterations):
        Q = softmax(log_p + Q @ mixing)
    return Q.reshape(C, H, W)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "crf",
    [CRF(), CRF(iterations=1), CRF(bi_xy=6, bi_rgb=20), CRF(bi_w=0), CRF(bi_w=0, pos_xy=3)],
    ids=str,
)
def test_is_the_exact_mean_field_up_to_the_lattice(crf: CRF, seed: int) -> None:
    image, p = scene(seed)
    ours, reference = dense_crf(image, p.astype(np.float32), crf), exact(image, p, crf)
    assert np.abs(ours - reference).mean() < 0.01
    assert (ours.argmax(axis=0) == reference.argmax(axis=0)).mean() >= 0.98


def test_without_pairs_the_probabilities_stay() -> None:
    image, p = scene()
    np.testing.assert_allclose(dense_crf(image, p, CRF(pos_w=0, bi_w=0)), p, atol=1e-5)


def test_probabilities_sum_to_1_and_labels_may_be_permuted() -> None:
    image, p = scene()
    refined = dense_crf(image, p)
    np.testing.assert_allclose(refined.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(dense_crf(image, p[::-1]), refined[::-1], atol=1e-4)


def test_memory_layout_and_read_only_arrays_change_nothing() -> None:
    image, p = scene()
    other = np.asfortranarray(image), np.ascontiguousarray(p.transpose(1, 2, 0)).transpose(2, 0, 1)
    for array in other:
        array.flags.writeable = False
    np.testing.assert_array_equal(dense_crf(*other), dense_crf(image, p))


def test_noise_on_a_real_mask_is_cleaned(data_root: Path) -> None:
    voc = data_root / "VOC2012"
    masks = sorted((voc / "SegmentationClassAug").glob("*.png"))
    if not masks:
        pytest.skip("no VOC2012")
    image = np.asarray(Image.open(voc / "JPEGImages" / f"{masks[0].stem}.jpg").convert("RGB"))
    truth = np.asarray(Image.open(masks[0]))
    labels = np.unique(truth[truth != 255])
    logits = 1.0 * (truth == labels[:, None, None])
    p = softmax(logits + np.random.default_rng(0).normal(0, 1, logits.shape))
    right = (labels[x.argmax(axis=0)] == truth for x in (p, dense_crf(image, p)))
    before, after = (r[truth != 255].mean() for r in right)
    assert after > before + 0.2


@pytest.mark.parametrize("processes", [0, 2])
def test_many_images_come_in_order(processes: int) -> None:
    jobs = [(f"image{seed}", *scene(seed)) for seed in range(9)]
    results = list(crf_labels(jobs, CRF(), processes))
    assert [name for name, _ in results] == [name for name, _, _ in jobs]
    for (_, labels), (_, image, p) in zip(results, jobs):
        assert labels.dtype == np.uint8
        np.testing.assert_array_equal(labels, dense_crf(image, p).argmax(axis=0))


def test_processes_start_where_there_is_no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.setattr(crf, "get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr(crf, "get_context", {"spawn": get_context("spawn")}.__getitem__)
    [(name, labels)] = crf_labels([("image", *scene(0))], CRF(), processes=1)
    assert name == "image" and labels.dtype == np.uint8


def test_jobs_are_drawn_as_they_are_needed() -> None:
    drawn = []

    def jobs() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for seed in range(20):
            drawn.append(seed)
            yield str(seed), *scene()

    results = crf_labels(jobs(), CRF(), processes=2)
    next(results)
    assert len(drawn) == 4
    results.close()
    assert len(drawn) == 4


@pytest.mark.parametrize("processes", [0, 1])
def test_an_error_names_its_image(processes: int) -> None:
    image, p = scene()
    jobs = [("good", image, p), ("bad", image[:5], p)]
    with pytest.raises(InputError, match=r"bad: .*\(5, 10, 3\)"):
        list(crf_labels(jobs, CRF(), processes))
    with pytest.raises(RuntimeError, match="worse: dense CRF failed"):
        list(crf_labels([("worse", image, "text")], CRF(), processes))


IN_A_LONG_FOLDER = """
import sys
import numpy as np
from oversmoothing.lab.tasks.wsss.crf import CRF, crf_labels
job = "a", np.zeros((9, 9, 3), np.uint8), np.full((2, 9, 9), 0.5, np.float32)
assert len([*crf_labels([job], CRF(), processes=1)]) == 1
sys.exit("torch" in sys.modules)
"""


def test_processes_need_no_torch_and_work_below_any_tmpdir(tmp_path: Path) -> None:
    (long := tmp_path / ("t" * 80)).mkdir()
    command = [sys.executable, "-c", IN_A_LONG_FOLDER]
    subprocess.run(command, env={**os.environ, "TMPDIR": str(long)}, check=True, timeout=100)


@pytest.mark.parametrize("bad", [np.nan, -1.0, 7.0])
def test_what_is_no_probability_is_refused(bad: float) -> None:
    image, p = scene()
    p[0, 0, 0] = bad
    with pytest.raises(InputError, match="softmax"):
        dense_crf(image, p)


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="task.evaluation.crf.bi_rgb: .* 0"):
        CRF(bi_rgb=0)
    with pytest.raises(InputError, match="task.evaluation.crf.pos_w: .* -1"):
        CRF(pos_w=-1)


def test_a_missing_package_has_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydensecrf.densecrf", None)
    with pytest.raises(InputError, match=r"pip install '\.\[crf\]'.*crf=null"):
        next(crf_labels([], CRF()))
