"""Small runs of pictures: their networks are trained, loaded and drawn."""

from pathlib import Path

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder

WSSS = [
    "experiment=wsss_scenes",
    "trainer=toco_smoke",
    "trainer.iterations=2",
    "trainer.warmup=1",
    "backbone.name=test_vit",
    "data.num_train=6",
    "data.num_val=6",
    "data.size=[40,48]",
    "task.augment.crop=32",
    "task.evaluation.size=32",
    "task.evaluation.ms_size=32",
    "task.evaluation.ms_scales=[1.0]",
    "task.evaluation.crf=null",
    "task.evaluation.limit=2",
    "task.evaluation.workers=0",
    "task.method.start=1",
    "aggregator.warmup=4",  # the state of γ's warm-up is not a tensor
    "seeds=[0,1]",
]
SEGMENTATION = [
    "task=segmentation",
    "data=scenes",
    "data.num_train=6",
    "data.num_val=3",
    "data.size=[40,48]",
    "backbone=resnet18",
    "backbone.weights=none",
    "backbone.dim=16",
    "aggregator=hem",
    "aggregator.num_bases=3",
    "trainer=emanet",
    "trainer.iterations=2",
    "trainer.batch_size=2",
    "trainer.workers=0",
    "task.head_dim=8",
    "task.aux_weight=0.4",
    "task.augment.crop=33",
    "task.evaluation.ms_scales=[]",
    "task.evaluation.size=40",
    "task.evaluation.workers=0",
    "seeds=[1]",
]
RUNS = {
    "centered": WSSS,
    "none": [*WSSS[:-2], "aggregator=none", "seeds=[0]"],
    "segmentation": SEGMENTATION,
}


def trained(name: str, outputs: Path) -> Path:
    """Trains a run, and returns its folder."""
    more = ["logger=none", "threads=1", "device=cpu", f"paths.outputs={outputs}"]
    config = compose_config([*RUNS[name], *more, f"paths.cache={outputs}/cache"])
    execute(config)
    return run_folder(config)
