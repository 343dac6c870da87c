"""The smallest run of weakly supervised segmentation, on generated scenes."""

from pathlib import Path

TINY = [
    "experiment=wsss_scenes",
    "trainer=toco_smoke",
    "data.num_train=12",
    "data.num_val=3",
    "data.size=[48,64]",
    "task.augment.crop=32",
    "task.evaluation.size=32",
    "task.evaluation.ms_size=32",
    "task.evaluation.crf=null",
    "task.evaluation.workers=0",
    "task.method.start=2",
    "task.method.par_iterations=2",
    "aggregator.gamma=-0.5",
    "logger=none",
    "threads=1",
    "device=cpu",
]


def words(outputs: Path, *overrides: str) -> list[str]:
    return [*TINY, f"paths.outputs={outputs}", f"paths.cache={outputs.parent}/cache", *overrides]
