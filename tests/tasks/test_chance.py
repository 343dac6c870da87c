"""The chance level of segmentations is the mIoU of the best answer with one label."""

from pathlib import Path

import pytest
import torch
from small_runs import words

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.tasks.overlap import Confusion


@pytest.mark.parametrize("task", ["segmentation", "wsss"])
def test_chance_is_the_miou_of_the_most_frequent_label(task: str, tmp_path: Path) -> None:
    start = Start(compose_config(words(task, tmp_path / "outputs", "data.num_val=5")))
    data, found = start.parts.data, {}
    for label in range(len(data.label_names)):
        confusion = Confusion(len(data.label_names))
        for id in data.val:
            mask = data.mask(id)
            confusion.update(torch.full_like(mask, label), mask)
        found[label] = confusion.miou()
    assert start.task.chance(start.parts, 0) == {
        "val_seg_miou": pytest.approx(max(found.values()), rel=1e-6)
    }
