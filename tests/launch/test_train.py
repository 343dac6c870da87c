"""The command line from end to end, on the embedded graph."""

import json
from pathlib import Path

import pytest

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.store.results import setting, summary
from oversmoothing.lab.train import FIRST, completed

SMALL = ["data.num_nodes=400", "trainer.epochs=4", "seeds=[0,1]", "logger=none", "threads=1"]


def results(folder: Path) -> list[dict]:
    found = sorted((folder / "outputs").glob("*/result.json"))
    return [json.loads(path.read_text()) for path in found]


def test_a_run_and_the_same_command_again(train, tmp_path: Path) -> None:
    code, out, err = train(*SMALL)
    assert (code, err, len(out)) == (0, [], 1)
    [result] = results(tmp_path)
    assert out[0].startswith(f"{result['name']}: test_accuracy ") and "(2 seeds, " in out[0]
    code, again, err = train(*SMALL)
    assert (code, err) == (0, [])
    assert again == [out[0].rpartition(", ")[0] + ", already there)"]
    code, _, [err] = train(*SMALL, "device=gpu")
    assert code == 2 and "device" in err


def test_what_is_trained_does_not_depend_on_where_and_how() -> None:
    how = ["device=cpu", "paths.outputs=elsewhere", "threads=1"]
    assert completed(how) == [*FIRST, *how] and completed([]) == FIRST
    assert completed([*how, "backbone.depth=4"]) == [*how, "backbone.depth=4"]
    own = ["experiment=first_look", "backbone.depth=2"]
    assert completed(own) is own  # its end would speak of other depths


def test_runs_of_a_sweep_are_told_apart_by_what_is_swept(train, tmp_path: Path) -> None:
    words = ["-m", "backbone.depth=2,3", "aggregator=none,centered", "trainer.lr=0.02"]
    for _ in range(2):
        code, out, err = train(*SMALL, *words)
        assert (code, err) == (0, [])
        said = {line.split(": ")[0] for line in out}
        assert said == {
            f"{r['name']} backbone.depth={r['config']['backbone']['depth']} aggregator={kind}"
            for r in results(tmp_path)
            for kind in ["centered" if "-centered-" in r["name"] else "none"]
        }
        assert len(said) == 4


def test_a_failing_run_leaves_the_others_their_results(train, tmp_path: Path) -> None:
    sweep = ["trainer.lr=0.01,1e30,0.02", "backbone.depth=4", "trainer.eval_every=1"]
    code, out, err = train(*SMALL, *sweep[:1], "-m", *sweep[1:])
    assert code == 1 and len(out) == 2
    assert [r["config"]["trainer"]["lr"] for r in results(tmp_path)].count(1e30) == 0
    assert len(results(tmp_path)) == 2
    assert "training loss is not finite" in err[0] and err[0].startswith("error: nodes-csbm-")
    assert err[1:] == ["error: 1 of 3 runs have no result"]


def test_a_crash_shows_where_and_ends_no_sweep(train, tmp_path: Path) -> None:
    """A user's aggregator that builds, and then fails in training."""
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator/broken.yaml").write_text("_target_: broken.Broken\n_partial_: true\n")
    (tmp_path / "broken.py").write_text(
        "from oversmoothing.aggregators.base import After\n\n\n"
        "class Broken(After):\n    def forward(self, x, context):\n        return x / None\n"
    )
    own = ["--config-dir", ".", "aggregator=broken,none"]
    code, out, err = train("-m", *own, *SMALL, path=str(tmp_path))
    assert code == 1 and len(out) == 1 and len(results(tmp_path)) == 1
    assert any("broken.py" in line and "line 6" in line for line in err)
    assert err[-1] == "error: 1 of 2 runs have no result"
    assert len(list((tmp_path / "outputs").glob("*/error.txt"))) == 1


def test_other_launchers_are_hydras(train, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ["hydra/launcher=processes", "hydra.launcher.n_jobs=1", "-m", "backbone.depth=2,3"]
    code, out, err = train(*SMALL, *words)
    assert code == 0, err
    assert sorted(r["config"]["backbone"]["depth"] for r in results(tmp_path)) == [2, 3]
    for depth in (2, 3):
        assert any(f"backbone.depth={depth}" in line for line in out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["aggregator=centered", "--cfg", "job", "backbone.depth=7"], "  depth: 7"),
        (["--help"], "aggregator: attn_scale, batchnorm, centered, contranorm, "),
    ],
)
def test_hydra_shows_configs(train, tmp_path: Path, words: list[str], expected: str) -> None:
    code, out, err = train(*words)
    assert (code, err) == (0, [])
    assert any(line.startswith(expected) for line in out)
    assert not (tmp_path / "outputs").exists()


def test_the_setting_of_a_run_has_its_method_chance_level_and_folder() -> None:
    config = compose_config(["aggregator=centered", "aggregator@then=layernorm"])
    result = {"seeds": {"0": {"test_accuracy": 95.0}}, "chance": {"0": {"test_accuracy": 21.0}}}
    line = "nodes, csbm, centered+layernorm, 2 layers, gcn"
    end = "chance, the largest class (21.00) -> f"
    assert setting(config, result, Path("f")) == f"    {line}; {end}"
    result["seeds"]["0"]["test_accuracy"] = 21.0
    assert setting(config, result, Path("f")) == f"    {line}; no better than {end}"


def test_a_summary_tells_every_number_that_all_seeds_have() -> None:
    one = {"accuracy": 10.0, "epoch": 3, "holds": True, "rank": 2, "layers": [1.0], "gap": 1.0}
    other = {"accuracy": 14.0, "epoch": 3, "holds": False, "rank": 4, "layers": [2.0], "gap": None}
    seeds = {"0": one, "1": other}
    line = summary({"name": "run", "seeds": seeds, "seconds": 2.4}, already=False)
    shown = "accuracy 12.00 ± 2.83, epoch 3, holds true for 1 of 2, rank 3.00 ± 1.41"  # ddof = 1
    assert line == f"run: {shown} (2 seeds, 2 s)"
    alone = summary({"name": "run", "seeds": {"0": seeds["0"]}, "seconds": 2.4}, already=True)
    assert alone.startswith("run: accuracy 10.00, epoch 3, holds true, rank 2")
    assert alone.endswith("(1 seed, already there)")
