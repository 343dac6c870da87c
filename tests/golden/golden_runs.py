"""Small runs of every task on one thread of the CPU, and what they must give, bit for bit.

    python tests/golden/golden.py runs

runs all commands below, some of them a second time with a stop within a step, in two minutes. They
need no data but those that name ``paths.data``, which are skipped without DATA_ROOT.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from golden_described import Golden, described, parameters
from small_runs import RUNS
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

ROOT = Path(__file__).parents[2]

GCN = "data.num_nodes=400 trainer.epochs=6 trainer.eval_every=2 backbone.depth=3"
NORMED = f"{GCN} aggregator=contranorm aggregator@then=layernorm task.layer_metrics=true"
PYG = f"{GCN} backbone=pyg backbone.hidden=8 aggregator=centered"
PARTS = f"{PYG} trainer.epochs=2 trainer.eval_every=1"
DEIT = "backbone.weights=${paths.data}/weights/deit_tiny_patch16_224.timm.pth"
MOBILENET = "backbone.weights=${paths.data}/weights/mobilenetv2_100.timm.pth"
COMMANDS = {  # <name> is a small run of tests/support; each ; begins another command
    "nodes": f"{NORMED} seeds=[0,1,2]",
    "nodes, one seed": f"{NORMED} seeds=[1]",
    "nodes, seeds added": f"{NORMED} seeds=[0] ; {NORMED} seeds=[0,1]",
    "nodes, sweep": f"-m {GCN} seeds=[0,1] aggregator=none,pairnorm,contranorm_d",
    "nodes, centered": f"{GCN} seeds=[0,1] aggregator=centered aggregator.warmup=4 "
    "backbone.residual=1 backbone.drop_edge=0.2 backbone.adjacency=symmetric "
    "aggregator.row_sum=true backbone.init=glorot backbone.share_aggregators=false "
    "trainer.selection=best-val trainer.patience=4",
    "nodes, negatives": f"{GCN} seeds=[0] aggregator=contranorm aggregator.negatives=50 "
    "aggregator.learnable=true aggregator.pre_norm=true aggregator@then=pairnorm then.mode=PN-SI",
    "nodes, gcnii": f"{GCN} backbone=gcnii aggregator=centered seeds=[0,1] "
    "trainer.dense_weight_decay=0.001",
    "nodes, jknet": f"{GCN} backbone=jknet backbone.jumping=max aggregator=layernorm seeds=[0,1]",
    "pyg, attention": f"{PYG} backbone.conv=GATConv backbone.options.heads=2 seeds=[0,1] "
    "backbone.jumping=lstm",
    "pyg, residual": f"{PYG} backbone.conv=SAGEConv seeds=[0] backbone.skip=residual "
    "aggregator@then=contranorm backbone.drop_edge=0.1",
    "minibatch, random": f"{PARTS} trainer=minibatch_random trainer.num_parts=3 seeds=[0,1]",
    "minibatch, clusters": f"{PARTS} trainer=minibatch_cluster trainer.num_parts=6 seeds=[0] "
    "trainer.parts_per_batch=2 trainer.accumulate=2 trainer.mean=batch",
    "wsss": "<wsss> seeds=[0] task.evaluation.ms_scales=[1.0] task.evaluation.every=1 "
    "task.evaluation.backgrounds=[0.3,0.6]",
    "wsss, adapted": f"<wsss> backbone.name=deit_tiny_patch16_224.fb_in1k {DEIT} "
    "seeds=[0] task.adaptation=2 "
    "aggregator@then=contranorm_vit task.method.filter=exact task.evaluation.ms_scales=[] "
    "task.evaluation.every=1 task.evaluation.boundary=true task.evaluation.known=true "
    "task.evaluation.backgrounds=[0.3,0.6] task.augment.jitter_p=1 task.augment.blur=1",
    "segmentation": "<segmentation> seeds=[0] task.dropout=0.1 task.aux_weight=0.4 "
    "task.evaluation.em_iterations=[1] task.evaluation.ms_scales=[0.75]",
    "segmentation, mobilenet": f"<segmentation> backbone=mobilenetv2 {MOBILENET} seeds=[0] "
    "aggregator.iterations=2 aggregator.step_size=1 trainer.lr=1e-4 "
    "task.evaluation.splits=[train,val] task.evaluation.ms_scales=[]",
    "classification": "<classification> seeds=[0,1] task.uniformity=0.1 backbone.drop_path=0.1 "
    "task.augment.rand_augment=rand-m9-mstd0.5-inc1",
    "classification, inside": "<classification> seeds=[0] aggregator=centered "
    "aggregator@then=contranorm_d backbone.after=norm2 task.repeats=2 trainer.precision=bf16",
    "classification, instead": "<classification> seeds=[0] aggregator=self_attention",
    "classification, t2t": "<classification_t2t> seeds=[0]",
    "classification, digits": "experiment=cls_digits seeds=[0] trainer.iterations=2 "
    "trainer.warmup=1 trainer.workers=0 trainer.batch_size=8 backbone.depth=1",
    "evaluation": f"<classification_eval> {DEIT} aggregator.gamma=-0.5 backbone.depth=12",
    "glue": "<glue> seeds=[0,1] backbone.dropout=0.1 task.dropout=0.1",
    "glue, albert": "<glue> seeds=[0] backbone=albert_base backbone.weights=none "
    "aggregator=contranorm_albert aggregator@then=centered "
    "backbone.position=[attention_norm,attention_sum]",
    "rank": "<rank> seeds=[0,1]",
    "proposition 1": "<propositions> seeds=[0,1]",
    "proposition 2": "<propositions> experiment=prop2 task.draws=3 seeds=[0]",
    "chameleon": "experiment=gnn_table6 seeds=[0,1] trainer.epochs=4 data=chameleon "
    "data.split=each paths.data=${oc.env:DATA_ROOT,data}",
}
STOPPED: dict[str, tuple] = {  # commands that are also stopped within a step and given again
    "nodes": (3,),
    "nodes, sweep": (3,),
    "minibatch, random": (4,),
    "minibatch, clusters": (3,),
    "wsss": (2,),
    "wsss, adapted": (2,),
    "segmentation": (2,),
    "classification": (2, "seeds=[1]", "seeds=[0]"),  # stopped with seed 1, then seed 0, then both
    "classification, t2t": (2,),
    "glue": (2,),
}
TESTED = ["nodes", "minibatch, random", "wsss", "segmentation", "classification", "glue"]


def skipped(name: str) -> bool:
    """Whether a command needs data that are not here."""
    return "paths.data" in COMMANDS[name] and "DATA_ROOT" not in os.environ


def golden(name: str, folder: Path, stop: tuple = (), more: Sequence[str] = ()) -> Golden:
    """Gives a command of ``COMMANDS`` in an empty folder; returns what its runs have given.

    Args:
        stop: optimization step within which the command is stopped, before it is given again;
            then seeds of the stopped command, and of commands between it and the last one.
        more: words for all commands.
    """
    commands = [[*words, *more] for words in _commands(name, folder)]
    if stop:
        step, *seeds = stop
        commands[:0] = [[*commands[0], own] for own in seeds] or commands[:1]
        stopped = [*commands.pop(0), "checkpoint_seconds=0"]
        with watched(step):
            assert train(stopped) != 0, f"{name}: ended before step {step}"
        assert any(folder.rglob("checkpoint*.pt")), f"{name}: no checkpoint before step {step}"
    with watched() as seen:
        for words in commands:
            assert (code := train(words)) == 0, f"{name}: exit code {code}"
    found = {"parameters": [parameters(optimizer) for optimizer in seen.optimizers]}
    folders = sorted(path.parent for path in (folder / "outputs").glob("*/config.yaml"))
    return found | {"runs": [*map(described, folders)]}


def train(words: list[str]) -> object:
    """Runs ``python train.py …`` in this process; returns what it exits with."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    argv = sys.argv
    sys.argv = ["train.py", *words]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
    except SystemExit as left:
        return left.code
    finally:
        sys.argv = argv
        for number, handler in before.items():
            signal.signal(number, handler)
    return None


def _commands(name: str, folder: Path) -> list[list[str]]:
    """Words of the commands of a name; all share the generated pictures and texts."""
    text = re.sub(r"<(\w+)>", lambda found: " ".join(RUNS[found[1]]), COMMANDS[name])
    more = ["logger=none", "device=cpu", "threads=1"]
    more += [f"paths.outputs={folder}/outputs", f"paths.cache={folder.parent}/cache"]
    if "experiment=glue" in text:
        more += [f"paths.data={_texts(folder.parent)}"]
    return [shlex.split(words) + more for words in text.split(" ; ")]


def _texts(folder: Path) -> Path:
    """Writes generated pairs of sentences as WNLI; the label is whether one repeats the other."""
    words, base = [f"word{n}" for n in range(20)], folder / "glue"
    if not base.exists():
        (base / "WNLI").mkdir(parents=True)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        (base / "bert-base-uncased-vocab.txt").write_text("\n".join([*special, *words]) + "\n")
        for file, count in (("train", 24), ("dev", 12)):
            rows = ["index\tsentence1\tsentence2\tlabel"]
            for n in range(count):
                first = " ".join(words[(n * k) % 20] for k in range(1, 2 + n % 5))
                rows += [f"{n}\t{first}\t{first if n % 2 else words[n % 20]}\t{n % 2}"]
            (base / "WNLI" / f"{file}.tsv").write_text("\n".join(rows) + "\n")
    return folder


class Watch:
    """The optimizers that have made a step, and the number of their steps."""

    def __init__(self) -> None:
        self.optimizers: list[Optimizer] = []
        self.steps = 0


@contextlib.contextmanager
def watched(stop: int | None = None) -> Iterator[Watch]:
    """Context that counts optimization steps, and stops as Ctrl-C does within one of them."""
    seen = Watch()

    def note(optimizer: Optimizer, *_: object) -> None:
        seen.steps += 1
        if not any(optimizer is known for known in seen.optimizers):
            seen.optimizers.append(optimizer)
        if seen.steps == stop:
            raise KeyboardInterrupt

    hook = register_optimizer_step_post_hook(note)
    try:
        yield seen
    finally:
        hook.remove()
