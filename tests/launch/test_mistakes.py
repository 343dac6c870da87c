"""Mistakes are told by their key, all together and before any run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.launch.command import attempt, command, configs, unfinished
from oversmoothing.lab.launch.execute import execute, run_folder

SMALL = ["data.num_nodes=400", "trainer.epochs=1", "seeds=[0]", "logger=none", "device=cpu"]


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


@pytest.mark.parametrize(
    ("line", "way_out"),
    [
        ("aggregator=Centered", "'centered'"),
        ("trainer.epocs=3", "'trainer.epochs'"),
        ("lr=0.1", "'trainer.lr'"),
        ("then=layernorm", "aggregator@then=…"),
        ("backbone=gat", "backbone=pyg backbone.conv=GATConv"),
        ("backbone.depth=2,4", "-m"),
        ("--multrun", "'--multirun'"),
        ("paths.outputs=~/runs", "$HOME"),
    ],
)
def test_a_mistake_has_one_line_with_the_way_out(line: str, way_out: str) -> None:
    [found] = lines(line)
    assert way_out in found


MISTAKES = {  # how the line begins -> commands, with ; between them
    "aggregator": "aggregator=null ; +aggregator=none",
    "aggregator.gamma": "aggregator.gamma=1 ; -m aggregator=none,centered aggregator.gamma=-1",
    "aggregator@norm": "aggregator@norm=layernorm ; +aggregator@norm=none",
    "aggregator@then": "aggregator@then=layernrm",
    "aggregator@then.eps": "aggregator@then.eps=1",
    "agregator.gamma": "agregator.gamma=1",
    "an interpolation": "seeds=${seeds}",
    "backbone": "backbone=[gcn,transformer] ; backbone=transformer ; data=sbm backbone=deit_ti",
    "backbone.depth": "backbone.depth=two ; backbone.depth=2.0 ; backbone.depth=true",
    "backbone.depth.x": "backbone.depth.x=3",
    "data": "data= ; data=none ; data=scene_crops data.num_train=8 data.num_val=4 ; "
    "task=classification backbone=deit_ti backbone.weights=none trainer=deit data=sbm",
    "deterministic": "deterministic=true",
    "device": "device=meta",
    "experiment": "experiment=gnn_tabel5 task.gammas=1 ; +experiment=gnn_table5 ; "
    "-m experiment=prop1,rank_fig1",
    "hydra/laucher": "hydra/laucher=basic",
    "hydra/launcher=processes": "hydra/launcher=processes",
    "hydra/sweeper": "-m hydra/sweeper=no_such",
    "hydra.job.chdri": "hydra.job.chdri=1",
    "hydra.job.name=a,b": "-m hydra.job.name=a,b",
    "hydra.mode": "hydra.mode=foo",
    "logger": "logger=none logger.mode=online",
    "matmul": "matmul=tf32",
    "optimize": "optimize=val_accuracy",
    "paths": "paths=5",
    "paths.outpts": "paths={outpts:a}",
    "paths.outputs": "paths.outputs=",
    "seed": "seed=3",
    "seeds": "seeds=3 ; seeds=[1,true] ; seeds=[] ; seeds=[-1] ; seeds=[99999999999999999999]",
    "task.gammas": "experiment=prop1 task.gammas=0:1:1e-12",
    "task.layer_metrics": "task.layer_metrics=yes",
    "then": "aggregator=layernorm aggregator@then=layernorm",
    "then.warmup": "aggregator@then=centered then.warmup=-1",
    "threads": "threads=many ; threads=0",
    "trainer": "trainer=toco",
    "trainer._target_": "trainer._target_=builtins.dict",
    "trainer.epochs": "+trainer.epochs=3",
    "trainer.epocs": "+trainer.epocs=3 ; ++trainer.epocs=3",
    "trainer.lr": "trainer.lr=??? ; trainer.lr= ; ~trainer.lr",
    "trainer.selection": "trainer.selection=best",
    "'centered'": "centered",
    "'=5'": "=5",
    "'a=b=c'": "a=b=c",
    "backbone.depth=range(3,3)": "-m backbone.depth=range(3,3)",
    "backbone.depth=range(1,9,0)": "-m backbone.depth=range(1,9,0)",
    "backbone.depth=range(0,1e9)": "-m backbone.depth=range(0,1e9)",
    "backbone.depth=glob(*)": "-m backbone.depth=glob(*)",
    "trainer.lr=interval(0,1)": "-m trainer.lr=interval(0,1)",
    "-m": "-m trainer.lr=range(0,101) backbone.depth=range(0,101)",
    "--cfg and --multirun": "--cfg job -m",
}


@pytest.mark.parametrize("key", MISTAKES)
def test_a_mistake_is_told_by_its_key(key: str) -> None:
    for line in MISTAKES[key].split(" ; "):
        [found] = lines(line)
        assert re.match(rf"[+~]*{re.escape(key)}[: =]", found), (line, found)


def test_data_are_read_when_all_else_is_right(tmp_path: Path) -> None:
    """Reading them may download and write files."""
    [found] = lines(f"data=cora paths.data={tmp_path / 'none'} backbone=pyg backbone.conv=GCNConvv")
    assert found.startswith("backbone.conv: ") and not any(tmp_path.iterdir())


def test_missing_weights_and_missing_data_are_told_together(tmp_path: Path) -> None:
    """With neither at hand, one command says all that has to be got."""
    weights, data = lines(f"experiment=wsss_voc_subset device=cpu paths.data={tmp_path}")
    assert weights.startswith("backbone.weights: ") and data.startswith(f"{tmp_path}: ")


def test_all_mistakes_of_a_command_come_together() -> None:
    """Names and types first; what only building the parts shows comes when these are right."""
    line = (
        "aggregator=centered aggregator.gamma=nan aggregator.gama=1 data=coro trainer.lr=fast "
        "seeds=[1,1] task.layer_metrics=1 hydra.foo=1 'seeds=[' ~threads --cofg=job"
    )
    keys = ["'seeds=['", "data", "~threads", "aggregator.gama", "hydra.foo", "seeds"]
    keys += ["task.layer_metrics", "aggregator.gamma", "trainer.lr"]
    assert lines(line)[0].startswith("--cofg=job")
    assert [x.split(":")[0] for x in lines(line.replace("--cofg=job", ""))] == keys
    built = "aggregator=centered aggregator.warmup=-1 trainer.lr=-1 device=cup"
    keys = ["trainer.lr", "aggregator.warmup", "device"]
    assert [found.split(":")[0] for found in lines(built)] == keys
    parts = ["trainer", "data", "backbone"]  # that do not fit each other
    assert [found.split(":")[0] for found in lines("task=rank")] == parts


def test_a_checked_command_leaves_no_trace(tmp_path: Path) -> None:
    configs(["paths.outputs=deep/er", "threads=1"])
    assert not list(tmp_path.iterdir())


# What depends on the machine


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    [line] = lines("device=cuda")
    assert line.startswith("device: ")


def test_widths_are_those_of_the_network(data_root: Path) -> None:
    pytest.importorskip("timm")
    words = "experiment=cls_digits aggregator=external_multihead threads=1 'seeds=[0]'"
    both = shlex.split(f"{words} aggregator.num_heads=16,32")
    assert len(configs(both, multirun=True)) == 2
    [line] = lines(f"-m {words} aggregator.num_heads=16,7")
    assert line.startswith("aggregator.num_heads: ") and "64" in line


def test_missing_data_name_the_folder_and_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    [line] = lines(f"data=cora paths.data={tmp_path}")
    assert line.startswith(f"{tmp_path}/graphs/Planetoid/Cora/raw: ") and "ind.cora.allx" in line


def test_an_output_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [line] = lines(f"paths.outputs={tmp_path}/file/below")
    assert line.startswith("paths.outputs: ")
    [config] = configs([*SMALL, f"paths.outputs={'x' * 300}"])
    assert "cannot be written" in attempt(config)


# A folder of configs of the user's own


AFTER = (
    "class Own(After):\n    def __init__(self, power: float = 1.0):\n        super().__init__()\n"
)
OWN: dict[str, tuple[str, str | None, str]] = {  # name -> module, YAML, what the line names
    "division": ("1 / 0\n", None, "aggregator._target_: own_division.Own .*ZeroDivisionError"),
    "syntax": ("def (:\n", None, r"aggregator._target_: .*own_syntax\.py"),
    "other": ("Other = 1\n", None, "aggregator._target_: .*has no Own"),
    "value": ("Own = 1\n", None, "aggregator._target_: own_value.Own"),
    "foreign": ("class Own:\n    pass\n", None, "aggregator._target_: own_foreign.Own"),
    "broken": (AFTER + "        self.nothing.x\n", None, "aggregator: .*AttributeError"),
    "needy": (AFTER.replace(" = 1.0", ""), None, "aggregator.power: missing"),
    "whole": (AFTER, "_target_: own_whole.Own\n", "aggregator._partial_: "),
    "empty": (AFTER, "", "aggregator: .*_target_"),
    "absent": (AFTER, "_target_: no_such.Own\n_partial_: true\n", "PYTHONPATH"),
    "typo": (AFTER, "_target_: own_typo.Own\n_partial_: true\npowr: 1\n", "'power'"),
    "yaml": (AFTER, "_target_: [\n", "while parsing"),
    "text": (AFTER, "scale: ${no.key}\n", "no.key"),
    "none": (AFTER, None, "aggregator: .*none.yaml"),
    "attention": (
        "class Own(Instead):\n    def forward(self, x, context):\n        return x\n",
        None,
        "aggregator.*inside, after",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_mistake_in_an_own_aggregator(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    code, yaml, expected = OWN[name]
    monkeypatch.syspath_prepend(tmp_path)
    bases = "from oversmoothing.aggregators.base import After, Instead\n\n\n"
    (tmp_path / f"own_{name}.py").write_text(bases + code)
    (tmp_path / "aggregator").mkdir()
    text = f"_target_: own_{name}.Own\n_partial_: true\n" if yaml is None else yaml
    (tmp_path / "aggregator" / f"{name}.yaml").write_text(text)
    with pytest.raises(Problems, match=expected) as caught:
        command(["--config-dir", str(tmp_path), f"aggregator={name}"])
    assert len(caught.value.lines) == 1 and "\n" not in caught.value.lines[0]
    assert capfd.readouterr() == ("", "")  # Hydra has nothing to add


# Results


def test_the_result_of_another_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = [*SMALL, f"paths.outputs={tmp_path}"]
    [config] = configs(words)
    result, file = execute(config), run_folder(config) / "result.json"
    file.write_text(json.dumps(result | {"id": "0123456789"}))
    assert "result.json: id: " in (attempt(config) or "")
    assert unfinished([config]) == 1  # so that the command exits with 1
    with pytest.raises(InputError, match=r"result\.json"):
        command(words)
    file.unlink()
    file.mkdir()
    assert "result.json: " in (attempt(config) or "")
    assert "Traceback" not in capsys.readouterr().err
