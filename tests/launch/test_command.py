"""Every class of mistake in a command: one line each, all together, before anything is run."""

import shlex
from pathlib import Path

import pytest

from oversmoothing.errors import Problems
from oversmoothing.lab.launch.command import command


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of earlier runs would hide mistakes: a finished run is not looked into."""
    monkeypatch.chdir(tmp_path)


def lines(line: str) -> list[str]:
    """What a command line is answered; it must not pass."""
    with pytest.raises(Problems) as caught:
        command(shlex.split(line))
    assert all("\n" not in problem for problem in caught.value.lines)
    return caught.value.lines


MISTAKES = {
    # unknown groups and options
    "aggregator=centred": "aggregator: there is no 'centred'; did you mean 'centered'?",
    "aggregator=Centered": "aggregator: there is no 'Centered'; did you mean 'centered'?",
    "data=karate": "data: there is no 'karate'; known: chameleon, citeseer, coco_stuff, coco_voc, ",
    "data=": "data: there is no ''; known: ",
    "backbone=gat": "; convolutions of torch-geometric: backbone=pyg backbone.conv=GATConv",
    "experiment=gnn_tabel5 task.gammas=1": "experiment: there is no 'gnn_tabel5'; did you mean",
    "aggregtor=centered": "aggregtor: no such key; did you mean 'aggregator'?",
    "aggregator@then=layernrm": "aggregator@then: there is no 'layernrm'; did you mean 'layernorm'",
    "aggregator@norm=layernorm": "aggregator@norm: there is no such group; did you mean",
    "+aggregator@norm=none": "aggregator@norm: there is no such group; did you mean",
    "aggregator@then.eps=1": "aggregator@then.eps: to set a key, leave the group out: then.eps=…",
    "then=layernorm": "then: choose its option by aggregator@then=…, set its keys by then.…=…",
    "backbone=[gcn,transformer]": "backbone: there is no '[gcn,transformer]'",
    "backbone=null": "backbone: cannot be null; known: albert_base, bert_base, ",
    "aggregator=null": "aggregator: cannot be null; did you mean 'none'?",
    "experiment=null": "experiment: cannot be null; leave it out",
    "+experiment=gnn_table5": "+experiment: it exists already; write experiment=… without the +",
    "~aggregator": "~aggregator: nothing can be removed",
    "hydra/laucher=basic": "hydra/laucher: there is no such group; did you mean",
    # unknown keys
    "trainer.epocs=3": "trainer.epocs: no such key with trainer=adam; did you mean 'trainer.epoch",
    "+trainer.epocs=3": "trainer.epocs: no such key with trainer=adam; did you mean 'trainer.epo",
    "++trainer.epocs=3": "trainer.epocs: no such key with trainer=adam; did you mean 'trainer.ep",
    "+trainer.epochs=3": "+trainer.epochs: it exists already; write trainer.epochs=… without",
    "seed=3": "seed: no such key; did you mean 'seeds'?",
    "thread=2": "thread: no such key; did you mean 'threads'?",
    "lr=0.1": "lr: no such key; did you mean 'trainer.lr'?",
    "task.nothing=1": "task.nothing: no such key with task=nodes; known: task.layer_metrics",
    "aggregator.gamma=1": "aggregator.gamma: no such key with aggregator=none, which has no keys",
    "agregator.gamma=1": "agregator.gamma: no such key; did you mean 'aggregator'?",
    "paths={outpts:a}": "paths.outpts: no such key; did you mean 'paths.outputs'?",
    "paths=5": "paths: it is not a value; set one of its keys: paths.data, paths.outputs",
    "backbone.depth.x=3": "backbone.depth.x: no such key",
    "~trainer.lr": "~trainer.lr: nothing can be removed",
    "hydra.job.chdri=1": "hydra.job.chdri: no such key; did you mean 'hydra.job.chdir'?",
    "hydra.mode=foo": "hydra.mode: Invalid value 'foo', expected one of [RUN, MULTIRUN]",
    # types and ranges
    "backbone.depth=two": "backbone.depth: expected a whole number, got 'two'",
    "backbone.depth=2.0": "backbone.depth: expected a whole number, got 2.0",
    "backbone.depth=true": "backbone.depth: expected a whole number, got true",
    "trainer.lr=fast": "trainer.lr: expected a finite number, got 'fast'",
    "trainer.lr=": "trainer.lr: expected a finite number, got ''",
    "trainer.lr=???": "trainer.lr: needs a value; add trainer.lr=…",
    "task.layer_metrics=yes": "task.layer_metrics: expected true or false, got 'yes'",
    "trainer.selection=best": "trainer.selection: expected one of last, best-val, got 'best'",
    "deterministic=true": "deterministic: expected one of off, warn, error, got true",
    "matmul=tf32": "matmul: expected one of medium, high, highest, got 'tf32'",
    "threads=many": "threads: expected a whole number or null, got 'many'",
    "threads=0": "or null for torch's choice, got 0",
    "seeds=3": "seeds: expected a list [a,b,…], each a whole number, got 3",
    "seeds=[1,true]": "seeds: expected a list [a,b,…], each a whole number, got [1,true]",
    "seeds=[]": "seeds: expected a list of different whole numbers from 0 to 2^63 − 1, got []",
    "seeds=[1,1]": "seeds: expected a list of different whole numbers from 0 to 2^63",
    "seeds=[-1]": "seeds: expected a list of different whole numbers from 0 to 2^63",
    "paths.outputs=": "paths.outputs: expected a path, got ''",
    "aggregator=centered aggregator.gamma=nan": "aggregator.gamma: expected a finite number, got",
    "aggregator@then=centered then.warmup=-1": "then.warmup: expected 0 or more training steps",
    "backbone.depth=0": "backbone.depth: expected 1 or more, got 0",
    "trainer.lr=-1": "trainer.lr: expected above 0, got -1",
    "device=banana": "device: expected auto, cpu, cuda or cuda:1, got 'banana'",
    "device=meta": "device: torch cannot use 'meta' here",
    "trainer.lr=${nope}": "an interpolation ${…} cannot be resolved: Interpolation key 'nope' not",
    "seeds=${seeds}": "an interpolation ${…} cannot be resolved: Recursive interpolation",
    # parts that do not fit
    "data=none": "data: task nodes needs one; choose with data=…",
    "backbone=transformer": "backbone: this task cannot use RandomTransformer, which",
    "data=sbm backbone=deit_ti": "backbone: this task cannot use ViT, which takes no x and",
    "data=sbm backbone=bert_base": "edges; choose backbone=gcn, gcnii, jknet or pyg",
    "task=rank data=none trainer=none": "backbone: this task simulates RandomTransformer, got GCN",
    # sweeps
    "backbone.depth=2,4": "backbone.depth=2,4 is a sweep: add -m, or write backbone.depth=[2,4]",
    "aggregator=none,centered": "aggregator=none,centered is a sweep: add -m",
    "-m backbone.depth=range(3,3)": "backbone.depth=range(3,3): expected 1 to 10000 values, got no",
    "-m backbone.depth=range(1,9,0)": "backbone.depth=range(1,9,0): range() arg 3 must not be zero",
    "-m backbone.depth=range(0,1e9)": "backbone.depth=range(0,1e9): expected 1 to 10000 values, go",
    "-m trainer.lr=interval(0,1)": "trainer.lr=interval(0,1): an interval has infinitely many",
    "-m backbone.depth=glob(*)": "backbone.depth=glob(*): glob(…) stands for options of a group",
    "-m hydra.job.name=a,b": "hydra.job.name=a,b: Hydra's own settings cannot be swept",
    "-m backbone.depth=2,0": "backbone.depth: expected 1 or more, got 0",
    "-m aggregator=none,centered aggregator.gamma=-1": "aggregator.gamma: no such key with aggreg",
    "-m experiment=prop1,rank_fig1": "experiment: rank_fig1 defines a sweep; run it alone",
    # syntax and flags
    "centered": "'centered': expected key=value, without spaces",
    "=5": "'=5': expected key=value, without spaces",
    "a=b=c": "'a=b=c': cannot be read; put '…' around the word",
    "-m backbone.depth=2,": "'backbone.depth=2,': cannot be read",
    "--multrun": "--multrun: no such flag; did you mean '--multirun'?",
    "--cfg jb": "argument --cfg/-c: invalid choice: 'jb'",
    "--cfg job -m": "--cfg and --multirun: only one of them at a time",
    "--cfg job aggregator=centred": "aggregator: there is no 'centred'; did you mean 'centered'?",
    "--resolve": "--resolve and --package: only with --cfg job",
    "--config-name other": "--config-name: not offered here; --config-dir adds a folder",
    "--config-dir nowhere": "nowhere: no such folder of configs",
    "hydra.searchpath=[pkg://nowhere.at.all]": "nowhere.at.all: no such folder of configs",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_has_one_line(line: str) -> None:
    found = lines(line)
    assert len(found) == 1
    assert MISTAKES[line] in found[0]


def test_impossible_combinations_are_told_with_the_way_out() -> None:
    assert lines("task=rank") == [
        "trainer: task rank has no use for it; add trainer=none",
        "data: task rank has no use for it; add data=none",
        "backbone: this task simulates RandomTransformer, got GCN; choose backbone=transformer",
    ]


def test_all_mistakes_of_a_command_come_together() -> None:
    """Names and types first; what only building the parts shows comes when these are right."""
    line = (
        "aggregator=centered aggregator.gamma=nan aggregator.gama=1 data=coro trainer.lr=fast "
        "seeds=[1,1] task.layer_metrics=1 hydra.foo=1 'seeds=[' ~threads --cofg=job"
    )
    starts = ["'seeds=['", "data", "~threads", "aggregator.gama", "hydra.foo", "seeds"]
    starts += ["task.layer_metrics", "aggregator.gamma", "trainer.lr"]
    assert lines(line)[0].startswith("--cofg=job: no such flag; did you mean '--cfg'?")
    assert [x.split(":")[0] for x in lines(line.replace("--cofg=job", ""))] == starts
    built = "aggregator=centered aggregator.warmup=-1 backbone.depth=0 trainer.lr=-1 device=cup"
    starts = ["trainer.lr", "aggregator.warmup", "device", "backbone.depth"]
    assert [found.split(":")[0] for found in lines(built)] == starts


def test_mistakes_in_the_files_of_a_folder_of_configs(tmp_path: Path) -> None:
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "mine.yml").write_text("_target_: mine.Mine\n")
    own = (
        "_target_: oversmoothing.aggregators.pairnorm.PairNorm\n_partial_: true\nscale: ${no.key}\n"
    )
    (tmp_path / "aggregator" / "own.yaml").write_text(own)
    [misnamed] = lines(f"--config-dir {tmp_path} aggregator=mine")
    assert misnamed.endswith("mine.yml is not read; rename it to mine.yaml")
    [missing] = lines(f"--config-dir {tmp_path} aggregator=own")
    assert "Interpolation key 'no.key' not found (at aggregator.scale)" in missing


def test_a_launcher_or_sweeper_without_a_sweep_is_refused() -> None:
    assert lines("optimize=val_accuracy data=sbm") == [
        "optimize: only a sweeper reads it; add -m hydra/sweeper=optuna"
    ]
    for override in ("hydra/launcher=processes", "hydra/sweeper=optuna"):
        assert lines(f"{override} data=sbm") == [f"{override}: has no effect on one run; add -m"]
