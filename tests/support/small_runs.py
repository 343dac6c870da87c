"""One small run of every task, for tests and benchmarks of devices."""

from pathlib import Path

OWN = ["seeds=[0]", "logger=none", "threads=1"]
SHORT = ["trainer.iterations=2", "trainer.workers=0", "trainer.log_every=1"]
SCENES = ["data.num_train=8", "data.num_val=2", "data.size=[48,64]"]
EVALUATION = ["task.evaluation.workers=0"]
VIT = ["backbone.depth=2", "backbone.drop_path=0"]
# the dropout of a GPU draws other numbers than that of the CPU
TRAINED = {
    "nodes": ["trainer.epochs=3", "trainer.eval_every=1", "data.num_nodes=400"]
    + ["aggregator=contranorm", "backbone.dropout=0"],
    "nodes_pyg": ["trainer=minibatch_random", "trainer.num_parts=2", "trainer.epochs=2"]
    + ["trainer.eval_every=1", "data.num_nodes=400", "backbone=pyg", "backbone.dropout=0"]
    + ["aggregator=centered"],
    "wsss": ["experiment=wsss_scenes", "trainer=toco_smoke", *SHORT, *SCENES, *EVALUATION]
    + ["trainer.warmup=0", "trainer.batch_size=4", "task.augment.crop=32"]
    + ["task.evaluation.size=32", "task.evaluation.ms_size=32", "task.evaluation.crf=null"]
    + ["task.method.start=1", "task.method.par_iterations=2", "aggregator.gamma=-0.5"],
    "segmentation": ["task=segmentation", "data=scenes", "backbone=resnet18", *SHORT, *SCENES]
    + ["backbone.weights=none", "backbone.dim=16", "aggregator=hem", "aggregator.num_bases=3"]
    + ["trainer=emanet", "trainer.batch_size=4", "trainer.accumulate=2", "task.augment.crop=33"]
    + ["task.head_dim=8", "task.dropout=0", "task.evaluation.size=40", *EVALUATION],
    "classification": ["experiment=cls_scenes", "data.num_train=8", "data.num_val=4", *VIT, *SHORT]
    + ["trainer.warmup=0", "trainer.batch_size=4", "task.mix.prob=1.0", "task.augment.erase=0.25"]
    + ["task.evaluation.layer_images=2", *EVALUATION, "aggregator=contranorm_vit"],
    "classification_t2t": ["experiment=cls_digits_eamlp", "data=scene_crops", "data.num_train=8"]
    + ["data.num_val=4", *SHORT, "trainer.warmup=0", "trainer.batch_size=4", "backbone.norm=batch"]
    + ["task.evaluation.layer_images=2", *EVALUATION],
    "glue": ["experiment=glue_sst2_small", "data.task=wnli", "task.max_length=16", *SHORT]
    + ["task.eval_batch=8", "backbone.dim=16", "backbone.heads=2", "backbone.ffn=16"]
    + ["backbone.depth=2", "backbone.dropout=0", "task.dropout=0", "trainer.warmup=0"]
    + ["trainer.batch_size=4"],
}
UNTRAINED = {
    "rank": ["experiment=rank_fig1", "hydra.mode=RUN", "backbone.depth=3", "task.gammas=[-1,0]"],
    "propositions": ["experiment=prop1", "backbone.depth=3"],
    "classification_eval": ["experiment=cls_eval", "data=scenes", "backbone=deit_ti"]
    + ["backbone.weights=none", "backbone.sha256=null", "backbone.depth=2", *EVALUATION]
    + ["data.num_train=2", "data.num_val=2"],
}
RUNS = TRAINED | UNTRAINED


def words(task: str, outputs: Path, *more: str) -> list[str]:
    """The command of a task's small run."""
    folders = [f"paths.outputs={outputs}", f"paths.cache={outputs.parent}/cache"]
    return [*RUNS[task], *OWN, *folders, *more]
