"""Mistakes that only building shows: devices, data, outputs, and a user's own aggregator."""

import shlex
import shutil
from pathlib import Path

import pytest

from oversmoothing.errors import Problems
from oversmoothing.lab.launch.command import command, configs


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


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert lines("device=cuda") == ["device: torch sees no GPU for 'cuda'; use device=cpu or auto"]


def test_an_aggregator_at_a_site_that_the_backbone_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "class Own(Instead):\n    def forward(self, x, context):\n        return x\n"
    own_aggregator(tmp_path, monkeypatch, "attention", code)
    [line] = lines(f"--config-dir {tmp_path} aggregator=attention")
    assert "Own acts instead of the mixing, and backbone gcn offers only: inside, after" in line


def test_widths_are_those_of_the_network(tmp_path: Path, data_root: Path) -> None:
    pytest.importorskip("timm")
    words = "experiment=cls_digits aggregator=external_multihead threads=1 'seeds=[0]'"
    both = shlex.split(f"{words} aggregator.num_heads=16,32")
    assert len(configs(both, multirun=True)) == 2
    [line] = lines(f"-m {words} aggregator.num_heads=16,7")
    assert line == "aggregator.num_heads: expected a divisor of the 64 channels, got 7"


def test_missing_data_names_the_folder_and_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    [line] = lines(f"data=cora paths.data={tmp_path}")
    assert line.startswith(f"{tmp_path}/graphs/Planetoid/Cora/raw: missing files")
    assert "put there: ind.cora.x, ind.cora.tx, ind.cora.allx" in line


def test_a_truncated_raw_file_is_refused(tmp_path: Path, data_root: Path) -> None:
    raw = Path("graphs/Planetoid/Cora/raw")
    shutil.copytree(data_root / raw, tmp_path / raw)
    cut = tmp_path / raw / "ind.cora.graph"
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:-9])
    [line] = lines(f"-m data=cora backbone.depth=2,4 paths.data={tmp_path}")
    assert line.startswith(f"{cut}: altered or truncated")


def test_an_output_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [line] = lines(f"paths.outputs={tmp_path}/file/below")
    assert "file/below cannot be written (Not a directory); choose another with" in line


def test_a_checked_command_leaves_no_trace(tmp_path: Path) -> None:
    configs(["paths.outputs=deep/er", "threads=1"])
    assert not list(tmp_path.iterdir())


def own_aggregator(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, yaml: str | None = None
) -> None:
    """A user's module, ``own_<name>``, and YAML."""
    monkeypatch.syspath_prepend(folder)
    bases = "from oversmoothing.aggregators.base import After, Instead\n\n\n"
    (folder / f"own_{name}.py").write_text(bases + code)
    (folder / "aggregator").mkdir()
    text = f"_target_: own_{name}.Own\n_partial_: true\n" if yaml is None else yaml
    (folder / "aggregator" / f"{name}.yaml").write_text(text)


AFTER = (
    "class Own(After):\n    def __init__(self, power: float = 1.0):\n        super().__init__()\n"
)
OWN = {
    "division": (
        "1 / 0\n",
        None,
        "own_division.Own cannot be imported (ZeroDivisionError: division",
    ),
    "syntax": ("def (:\n", None, "cannot be imported (SyntaxError: invalid syntax (own_syntax.py"),
    "other": ("Other = 1\n", None, "own_other.Own cannot be imported (own_other has no Own)"),
    "value": ("Own = 1\n", None, "own_value.Own is not a class or function"),
    "foreign": (
        "class Own:\n    pass\n",
        None,
        "own_foreign.Own is not an aggregator; it must derive from",
    ),
    "broken": (AFTER + "        self.nothing.x\n", None, "(AttributeError: 'Own' object has no"),
    "needy": (AFTER.replace(" = 1.0", ""), None, "aggregator.power: missing; the YAML must name"),
    "whole": (AFTER, "_target_: own_whole.Own\n", "aggregator._partial_: expected true: more arg"),
    "empty": (AFTER, "", "aggregator: its YAML names no _target_"),
    "absent": (AFTER, "_target_: no_such.Own\n_partial_: true\n", "must be on PYTHONPATH"),
    "typo": (AFTER, "_target_: own_typo.Own\n_partial_: true\npowr: 1\n", "did you mean 'power'?"),
    "yaml": (AFTER, "_target_: [\n", "while parsing"),
    "none": (AFTER, None, "several folders have a none.yaml, and the first wins; rename yours"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_mistake_in_an_own_aggregator(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    code, yaml, expected = OWN[name]
    own_aggregator(tmp_path, monkeypatch, name, code, yaml)
    [line] = lines(f"--config-dir {tmp_path} aggregator={name}")
    assert expected in line
    assert capfd.readouterr() == ("", "")  # Hydra has nothing to add


VIT = "backbone=deit_ti backbone.weights=none"
CROPS = "data=scene_crops data.num_train=8"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"task=wsss task.evaluation.crf=null {VIT} trainer=toco_smoke {CROPS}", "no background"),
        (f"task=segmentation backbone=resnet18 backbone.weights=none trainer=emanet {CROPS}",
         "has no masks"),
        (f"task=classification_eval {VIT} trainer=none data=sbm", "needs images"),
        (f"task=classification {VIT} trainer=deit data=sbm", "needs one class per image"),
        ("task=glue backbone=bert_small trainer=bert data=sbm", "reads sentences"),
        (f"task=nodes {CROPS}", "needs a graph"),
    ],
)  # fmt: skip
def test_data_that_a_task_cannot_use_are_refused_before_any_work(line: str, said: str) -> None:
    [problem] = lines(line)
    assert problem.startswith("data ") and said in problem and "; choose" in problem
