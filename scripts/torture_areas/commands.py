"""Commands of a small but complete run of every task."""

from pathlib import Path

IMAGES = [
    *("data.num_train=12", "data.num_val=3", "data.size=[48,64]", "seeds=[0]"),
    *("task.evaluation.workers=0", "trainer.workers=2", "trainer.log_every=1"),
]
OF_TASK = {
    "nodes": [
        *("data.num_nodes=400", "trainer.epochs=100", "trainer.eval_every=5", "seeds=[0,1]"),
        *("backbone.depth=3", "aggregator=centered", "aggregator@then=layernorm"),
    ],
    "minibatch": [
        *("backbone=pyg", "trainer=minibatch_random", "data.num_nodes=400", "seeds=[0]"),
        *(
            "trainer.epochs=20",
            "trainer.num_parts=4",
            "trainer.eval_every=1",
            "trainer.accumulate=2",
        ),
    ],
    "wsss": [
        *("experiment=wsss_scenes", "trainer=toco_smoke", *IMAGES, "trainer.iterations=6"),
        *("task.augment.crop=32", "task.evaluation.size=32", "task.evaluation.ms_size=32"),
        *("task.evaluation.crf=null", "task.method.start=3", "task.method.par_iterations=2"),
    ],
    "segmentation": [
        *("task=segmentation", "data=scenes", "backbone=resnet18", "backbone.weights=none"),
        *("trainer=emanet", "aggregator=hem", "aggregator.num_bases=8", *IMAGES),
        *("trainer.iterations=4", "trainer.batch_size=4", "task.augment.crop=33"),
    ],
    "classification": [
        *("experiment=cls_scenes", "seeds=[0,1]", "trainer.iterations=10", "trainer.warmup=2"),
        *("data.num_train=40", "data.num_val=10", "trainer.batch_size=8", "trainer.workers=2"),
        *("task.evaluation.workers=0", "task.evaluation.layer_images=2", "trainer.log_every=1"),
        *("backbone.depth=2",),
    ],
    "classification_eval": [
        *("experiment=cls_eval", "data=scenes", "backbone.weights=none", "backbone.sha256=null"),
        *("data.num_train=4", "data.num_val=2", "task.evaluation.workers=0", "seeds=[0]"),
    ],
    "glue": [
        *("experiment=glue_sst2_small", "data.task=wnli", "seeds=[0]", "task.max_length=16"),
        *("backbone.dim=16", "backbone.heads=2", "backbone.ffn=16", "backbone.depth=2"),
        *("trainer.iterations=12", "trainer.warmup=2", "trainer.batch_size=4", "trainer.workers=2"),
        *("trainer.log_every=1", "task.eval_batch=8"),
    ],
    "rank": [
        *("experiment=rank_fig1", "hydra.mode=RUN", "backbone.depth=40", "seeds=[0,1]"),
        *("task.gammas=[-1,-0.5,0]",),
    ],
    "propositions": ["experiment=prop1", "backbone.depth=40", "seeds=[0,1,2]"],
}


def words(task: str, outputs: Path) -> list[str]:
    """Returns the command of a task, which saves a checkpoint as often as possible.

    Args:
        task: name of the task.
        outputs: its output folder; generated data are next to it.
    """
    own = ["logger=none", "threads=1", "device=cpu", "checkpoint_seconds=0"]
    data = [f"paths.data={glue(outputs.parent)}"] if task == "glue" else []
    paths = [f"paths.outputs={outputs}", f"paths.cache={outputs.parent}/cache", *data]
    return [*OF_TASK[task], *own, *paths]


def glue(folder: Path) -> Path:
    """Writes sentences for the task ``glue`` once."""
    base = folder / "data/glue"
    if not (base / "WNLI/dev.tsv").exists():
        (base / "WNLI").mkdir(parents=True, exist_ok=True)
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
        (base / "bert-base-uncased-vocab.txt").write_text("\n".join(tokens) + "\n", "utf-8")
        for part, number in (("train", 24), ("dev", 8)):
            rows = [f"{i}\t{'abcd'[i % 4]} b c\t{'efgh'[i % 3]} b\t{i % 2}" for i in range(number)]
            text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
            (base / f"WNLI/{part}.tsv").write_text(text, "utf-8")
    return folder / "data"
