"""The Python of the guides runs from top to bottom, and prints what is shown."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from guide import ROOT
from small_pyg import CONVS

from oversmoothing.adapters.names import known
from oversmoothing.adapters.sites import SITES
from oversmoothing.lab.data.image_set import class_names
from oversmoothing.lab.data.voc import from_file
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import execute

SWEEP = ["aggregator=centered", "aggregator.gamma=-1,0", "backbone.depth=2", "trainer.epochs=2"]
SWEEP += ["data.num_nodes=400", "seeds=[0,1]", "logger=none", "paths.outputs=outputs/gamma"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some guides save files


def text_of(page: str) -> str:
    return (ROOT / f"docs/guides/{page}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.M | re.S)


def run(page: str, code: list[str]) -> dict:
    """Runs blocks of code one after the other; returns their names."""
    names: dict = {}
    for block in code:
        exec(compile(block, f"docs/guides/{page}.md", "exec"), names)
    return names


@pytest.mark.parametrize("page, count", [("apply", 13), ("faq", 6)])
def test_the_code_of_a_guide_runs(page: str, count: int) -> None:
    torch.manual_seed(0)
    assert len(blocks(page)) == count
    names = run(page, blocks(page))
    if page == "apply":
        assert not torch.equal(names["changed"], names["plain"])


def test_the_guide_names_every_method_that_can_be_causal() -> None:
    [named] = re.findall(
        r"^Only (.*?) and the skip connections can be causal", text_of("apply"), re.M | re.S
    )
    causal = {name for name, kind in known().items() if kind.can_be_causal and kind.site in SITES}
    skips = {name for name in causal if known()[name].reads_inputs}
    assert set(re.findall(r"`(\w+)`", named)) == causal - skips - {"none"}


def test_reports_are_written() -> None:
    run("diagnose", blocks("diagnose"))
    assert Path("layers.csv").exists() and Path("layers.png").exists()


def test_pairnorm_keeps_the_rank_that_the_page_shows(capsys: pytest.CaptureFixture) -> None:
    run("transformers", blocks("transformers"))
    plain, with_method = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines())
    [shown] = blocks("transformers", "text")
    assert [plain, with_method] == pytest.approx(
        [float(n) for n in re.findall(r"^[\d.]+", shown, re.M)], rel=0.02
    )
    assert with_method > 2 * plain


def test_the_deep_graph_network_of_the_guide_keeps_its_rank(capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("torch_geometric")
    run("cures", blocks("cures"))
    printed = dict(re.findall(r"^(convs\.\d+) +(.+)$", capsys.readouterr().out, re.M))
    [shown] = blocks("cures", "text")
    rows = dict(re.findall(r"^(convs\.\d+) +(.+)$", shown, re.M))
    assert len(rows) > 3
    for layer, row in rows.items():
        numbers, own = (re.findall(r"[\d.]+", text) for text in (row, printed[layer]))
        assert [*map(float, own)] == pytest.approx([*map(float, numbers)], rel=0.02)


def test_labels_of_other_codes_are_read() -> None:
    row = np.eye(20)[3] + np.eye(20)[14]
    np.save("cls_labels_onehot.npy", {"2007_000032": row})
    run("data", blocks("data"))
    assert from_file(Path("labels.json"), class_names("voc")) == {"2007_000032": (4, 15)}


def test_layers_of_graph_networks_are_shown(capsys: pytest.CaptureFixture) -> None:
    run("graphs", blocks("graphs")[:1])
    assert "layers.3" in capsys.readouterr().out


def test_the_guide_lists_every_convolution() -> None:
    listed = text_of("graphs").partition("`backbone.conv` is one of ")[2].partition(". ")[0]
    assert sorted(re.findall(r"\w+", listed)) == sorted(CONVS)


def test_results_of_a_sweep_become_a_table(capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("pandas")
    for config in configs(SWEEP, multirun=True):
        execute(config)
    names = run("sweeps", blocks("sweeps"))
    counts = names["results"].groupby(names["swept"])["seed"].count()
    assert counts.to_dict() == {(-1, 2): 2, (0, 2): 2}
    assert "mean" in capsys.readouterr().out
