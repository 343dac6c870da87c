"""Mistakes in runs of weakly supervised segmentation are found before any work."""

from dataclasses import replace
from pathlib import Path

import pytest
from run_log import log_text
from tiny_wsss import words

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job


@pytest.mark.parametrize("part", ["train", "val"])
def test_missing_masks_and_labels_are_found_before_the_training(tmp_path: Path, part: str) -> None:
    config = compose_config(words(tmp_path / "out", "task.evaluation.splits=[val,train]"))
    start = Start(config)
    for lacking, said in (("mask_files", "have no mask"), ("present", "no image-level label")):
        known = getattr(start.parts.data, lacking)
        left = {id: own for id, own in known.items() if id != getattr(start.parts.data, part)[0]}
        parts = replace(start.parts, data=replace(start.parts.data, **{lacking: left}))
        job = Job(parts, [0], Recorder(tmp_path, [0]), start.device)
        with pytest.raises(InputError, match=said):
            start.task.run(start.network([0]), job)
    assert not log_text(tmp_path)


@pytest.mark.parametrize(
    "override, said",
    [
        ("task.augment.crop=8", r"task\.augment\.crop: expected a multiple of the patch, 16 px"),
        ("task.evaluation.size=40", r"task\.evaluation\.size: expected a multiple of the patch"),
        ("task.adaptation=-1", r"task\.adaptation: expected 0 or more iterations"),
        ("task.adaptation=2", r"task\.adaptation: expected 0, or more than trainer\.warmup=2"),
        ("task.adaptation=3", r"task\.adaptation: the network has no pretrained weights to adapt"),
        ("task.aux_block=12", r"task\.aux_block: expected a block 0 to 5"),
        ("task.method.high=0.1", r"task\.method\.low, \.high: expected 0 < low <= high < 1"),
        ("task.method.hihg=0.1", r"task\.method\.hihg.*did you mean 'task\.method\.high'"),
        (
            "task.method.aux_labels_until=5 task.method.aux_weight=0",
            r"aux_labels_until: expected 0, ",
        ),
        ("task.method.start=soon", r"task\.method\.start: expected a whole number"),
        ("trainer.batch_size=3 trainer.accumulate=2", r"trainer\.batch_size: 3 examples"),
    ],
)
def test_mistakes_are_found_before_any_work(tmp_path: Path, override: str, said: str) -> None:
    with pytest.raises(Problems, match=said):
        configs(words(tmp_path / "out", *override.split()))


def test_a_decoder_that_is_not_trained_is_one_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"task\.method\.start=6: .* only 6 iterations"):
        configs(words(tmp_path / "out", "task.method.start=6"))
