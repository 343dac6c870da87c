"""The numbers of a split against direct counts; shares, limits, and data without background."""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_network import Fake, one_by_one
from PIL import Image
from torch import Tensor, nn

from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.data import folders as in_folders
from oversmoothing.lab.data import scenes
from oversmoothing.lab.data.image_set import ImageSet, palette
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.segmentation import Evaluation, Evaluator, iterating
from oversmoothing.lab.tasks.segmentation_network import Segmenter, whole_image

SS = {"ms_scales": [], "workers": 0}


def by_colour(images: Tensor) -> Tensor:
    """One-hot labels of images whose colours are VOC's palette of 21 labels."""
    colours = torch.from_numpy(palette()[:21]).float() / 255
    return -(images[:, None] - colours.view(1, 21, 3, 1, 1)).square().sum(2)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    cache = tmp_path_factory.mktemp("cache")
    return scenes.load(str(cache), num_train=3, num_val=5, size=(40, 52))


@pytest.fixture(scope="module")
def real(data_root: Path) -> ImageSet:
    """VOC's subset, whose images are its masks in colour."""
    lists = {"lists": "ImageSets/Segmentation", "train": "train_subset", "val": "val_subset"}
    folders = {"folder": "VOC2012", "masks": "SegmentationClassAug", "classes": "voc"}
    data = in_folders.load_masks(str(data_root), **folders, **lists)
    if Image.open(data.mask_files[data.val[0]]).mode != "P":
        pytest.skip("these masks are grey")
    return dataclasses.replace(data, image_files=data.mask_files)


def evaluator(network: nn.Module, data: ImageSet, tmp_path: Path, **options: object) -> Evaluator:
    evaluation = Evaluation(**(SS | options))
    return Evaluator(
        network, data, evaluation, torch.device("cpu"), Recorder(tmp_path / "run", [0])
    )


def test_the_numbers_are_those_of_a_direct_count(real, tmp_path):
    """Every label predicted as the next one in every other row; counted with numpy."""

    def half_wrong(images: Tensor) -> Tensor:
        logits = by_colour(images)
        logits[:, :, ::2] = logits[:, :, ::2].roll(1, dims=1)
        return logits

    measured = evaluator(Fake(half_wrong), real, tmp_path, limit=10)
    found, matrix = measured.split("val"), np.zeros((21, 21), dtype=np.int64)
    for id in measured.ids("val"):
        truth = np.array(Image.open(real.mask_files[id])).astype(int)
        predicted = truth.copy()
        predicted[::2] = (predicted[::2] + 1) % 21
        known = truth != 255
        np.add.at(matrix, (truth[known], predicted[known]), 1)
    hit, true = matrix.diagonal(), matrix.sum(1)
    with np.errstate(invalid="ignore"):
        iou = 100 * hit / (true + matrix.sum(0) - hit)
    assert found["val_seg_miou"] == pytest.approx(iou[true > 0].mean())
    assert found["val_seg_accuracy"] == pytest.approx(100 * hit.sum() / matrix.sum())
    for ours, direct in zip(found["val_seg_iou"].values(), iou):
        assert ours is None and np.isnan(direct) or ours == pytest.approx(direct)


def test_stages_limits_and_their_words(drawn, tmp_path):
    network = Fake(one_by_one())
    options = {"ms_scales": [0.5, 1.0], "limit": 4, "ms_limit": 2, "flip": True}
    measured = evaluator(network, drawn, tmp_path, **options)
    found = measured.split("val")
    assert len(network.saw) == 4 + 2 * 2 * 2  # single-scale; images × scales × flips
    keys = {"seg_miou", "seg_iou", "seg_ms_miou", "seg_ms_iou", "seg_accuracy"}
    assert set(found) == {f"val_{key}" for key in keys}
    said = measured.conditions("val")
    assert (
        said["seg"] == "4 images of scenes val, 6 labels, whole, own size, single scale, "
        "no flip, no CRF"
    )
    assert said["seg_ms"].startswith("2 images") and "0.5, 1 with flips, logits" in said["seg_ms"]
    assert set(evaluator(network, drawn, tmp_path).conditions("val")) == {"seg"}
    assert measured.ids("train") == list(drawn.train)


def test_shares_of_processes_are_the_whole(drawn, tmp_path, monkeypatch):
    measured = evaluator(Fake(one_by_one()), drawn, tmp_path, ms_scales=[1.0], ms_limit=3)
    whole = measured.counts("val")
    monkeypatch.setenv("WORLD_SIZE", "7")  # more than images: some have none
    for rank in range(7):
        monkeypatch.setenv("RANK", str(rank))
        for stage, counts in measured.counts("val").items():
            whole[stage].matrix -= counts.matrix
    assert all(not counts.matrix.any() for counts in whole.values())


def test_without_background_the_first_class_is_label_0(drawn, tmp_path):
    """Of the same masks: background is then counted nowhere."""
    bare = dataclasses.replace(drawn, zero="ignored")
    counts = evaluator(Fake(one_by_one(5)), bare, tmp_path).counts("val")["seg"].matrix
    every = evaluator(Fake(one_by_one(6)), drawn, tmp_path).counts("val")["seg"].matrix
    assert counts.shape == (5, 6) and torch.equal(counts.sum(1), every.sum(1)[1:])
    found = evaluator(Fake(one_by_one(5)), bare, tmp_path).split("val")
    assert list(found["val_seg_iou"]) == list(drawn.classes)


def test_missing_masks_stop_before_the_first_image(drawn, tmp_path):
    network = Fake(one_by_one())
    bare = dataclasses.replace(drawn, mask_files={})
    with pytest.raises(InputError, match="5 of 5 val images have no mask"):
        evaluator(network, bare, tmp_path).split("val")
    assert not network.saw


def test_em_is_measured_with_other_iterations_and_keeps_its_own(drawn, tmp_path):
    torch.manual_seed(0)
    factories = [partial(EM, num_bases=3, iterations=2, l2=False, temperature=0.05)]
    network = Segmenter(
        CNN(factories, "resnet18", "none", output_stride=16, multi_grid=None, dim=8), 6
    )
    found = evaluator(network, drawn, tmp_path, em_iterations=[1, 2, 9]).split("val")
    assert found["val_seg_t2_miou"] == found["val_seg_miou"]
    [em] = [module for module in network.modules() if isinstance(module, EM)]
    assert em.eval_iterations == 2
    image = drawn.image(drawn.val[0]).float() / 255
    with torch.no_grad():
        few, many = (_logits(network, image, T) for T in (1, 9))
    assert not torch.allclose(few, many, rtol=1e-3)
    plain = Segmenter(
        CNN([NoAggregator], "resnet18", "none", output_stride=16, multi_grid=None, dim=8), 6
    )
    other = evaluator(plain, drawn, tmp_path, em_iterations=[1]).split("val")
    assert "val_seg_t1_miou" not in other


def _logits(network: Segmenter, image: Tensor, T: int) -> Tensor:
    with iterating(network, T):
        return whole_image(network, image)
