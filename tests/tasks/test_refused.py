"""Values out of range are named by their key before any work: in commands, and in parts."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from small_parts import batches, graph
from small_runs import words

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.tasks.classification_augment import Augment
from oversmoothing.lab.tasks.nodes import FullBatchAdam
from oversmoothing.lab.tasks.nodes_minibatch import ClusterAdam, RandomNodeAdam
from oversmoothing.lab.tasks.wsss.crf import CRF

COMMANDS = [
    ("wsss", "task.augment.crop=8"),  # no multiple of the patch
    ("wsss", "task.evaluation.size=40"),
    ("wsss", "task.adaptation=-1"),
    ("wsss", "task.adaptation=2 trainer.iterations=4 trainer.warmup=2"),
    ("wsss", "task.adaptation=3"),  # no pretrained weights to adapt
    ("wsss", "task.aux_block=12"),
    ("wsss", "task.method.aux_labels_until=5 task.method.aux_weight=0"),
    ("wsss", "task.method.start=soon"),
    ("wsss", "trainer.batch_size=3 trainer.accumulate=2"),
    ("segmentation", "task.augment.crop=0"),
    ("segmentation", "aggregator.step_size=1.5"),
    ("classification", "task.augment.size=30"),
    ("classification", "task.evaluation.size=2"),
    ("classification", "trainer.batch_size=3"),  # images are mixed in pairs
    ("classification_eval", "trainer=deit"),
    ("classification_eval", "backbone=resnet18"),
    ("glue", "task.max_length=4"),
    ("glue", "trainer.warmup=6"),
    ("glue", "backbone.position=after"),
    ("glue", "data.task=sst"),
    ("glue", "data.vocabulary=v.txt"),
    *(("rank", f"task.gammas={grid}") for grid in ("[]", "0:1", "0:1:0", "1:0:0.1", "0:inf:0.1")),
    ("propositions", "task.draws=2"),
]


@pytest.mark.parametrize(("task", "wrong"), COMMANDS)
def test_commands(task: str, wrong: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue("data_root") if task == "glue" else tmp_path
    asked = words(task, tmp_path / "out", f"paths.data={root}", *wrong.split())
    with pytest.raises(Problems, match=re.escape(wrong.split("=")[0].replace("task.augment", ""))):
        configs(asked)


def test_a_tokenizer_with_more_tokens_than_embeddings(tmp_path: Path, data_root: Path) -> None:
    own = [f"paths.data={data_root}", "device=cpu", "backbone.vocabulary=100"]
    [config] = configs(words("glue", tmp_path / "out", *own))
    with pytest.raises(InputError, match="30522 tokens.*embeddings for 100"):
        execute(config)


PARTS: list[tuple[str, Callable[[], object]]] = [
    ("patience", lambda: FullBatchAdam(patience=5)),
    ("patience", lambda: FullBatchAdam(patience=4, eval_every=5, selection="best-val")),
    ("parts_per_batch", lambda: ClusterAdam(num_parts=3)),
    ("num_parts", lambda: batches(RandomNodeAdam(num_parts=41), graph())),
    ("num_parts", lambda: batches(ClusterAdam(num_parts=41), graph())),
    ("rand_augment", lambda: Augment(rand_augment="mild")),
    ("ratio", lambda: Augment(ratio=[1.0])),
    ("bi_rgb", lambda: CRF(bi_rgb=-1)),
]


@pytest.mark.parametrize(("key", "make"), PARTS)
def test_parts(key: str, make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=rf"\.{key}: expected"):
        make()
