"""Small runs of pictures: their networks are trained, loaded and drawn."""

from pathlib import Path

import small_runs

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder

SIZES = ["data.num_train=6", "data.size=[40,48]"]
WSSS = [
    *(*small_runs.RUNS["wsss"], *SIZES, "data.num_val=6", "trainer.warmup=1"),
    *("backbone.name=test_vit", "task.evaluation.ms_scales=[1.0]", "task.evaluation.limit=2"),
    # the state of γ's warm-up is not a tensor
    *("aggregator.gamma=-1", "aggregator.warmup=4", "seeds=[0,1]"),
]
SEGMENTATION = [
    *(*small_runs.RUNS["segmentation"], *SIZES, "data.num_val=3", "trainer.batch_size=2"),
    *("trainer.accumulate=1", "task.aux_weight=0.4", "task.evaluation.ms_scales=[]", "seeds=[1]"),
]
RUNS = {
    "centered": WSSS,
    "none": [word for word in WSSS if "aggregator" not in word] + ["aggregator=none", "seeds=[0]"],
    "segmentation": SEGMENTATION,
}


def trained(name: str, outputs: Path) -> Path:
    """Trains a run, and returns its folder."""
    more = ["logger=none", "threads=1", "device=cpu", f"paths.outputs={outputs}"]
    config = compose_config([*RUNS[name], *more, f"paths.cache={outputs}/cache"])
    execute(config)
    return run_folder(config)
