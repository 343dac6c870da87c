"""Sweepers that choose the runs: Hydra's plugins, which train.py gives a metric."""

import json
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException

from hydra_plugins.oversmoothing import distribution

SMALL = ["data.num_nodes=400", "trainer.epochs=4", "seeds=[0,1]", "logger=none", "threads=1"]
OPTUNA = ["-m", "hydra/sweeper=optuna", "hydra.sweeper.direction=maximize"]
OPTUNA += ["aggregator=centered", "aggregator.gamma=interval(-1.5,0)"]


def results(folder: Path) -> dict[float, list[dict]]:
    """γ -> results of the seeds."""
    found = [json.loads(path.read_text()) for path in (folder / "outputs").glob("*/result.json")]
    return {r["config"]["aggregator"]["gamma"]: [*r["seeds"].values()] for r in found}


def test_mistakes_are_found_before_the_first_trial(train, tmp_path: Path) -> None:
    words = ["hydra.sweeper.sed=1", "aggregator.gama=interval(-1,0)", "trainer.lr=fast"]
    code, out, err = train(*OPTUNA, *words)
    assert (code, out) == (2, [])
    keys = ["hydra.sweeper.sed", "aggregator.gama", "optimize", "trainer.lr"]
    assert [line.split(":")[1].strip() for line in err] == keys
    assert not (tmp_path / "outputs").exists()


def test_a_metric_that_is_not_there_is_one_line(train) -> None:
    words = ["hydra.sweeper.n_trials=1", *SMALL, "optimize=val_acuracy"]
    code, out, err = train(*OPTUNA, *words)
    assert code == 1 and not any("best of" in line for line in out)
    assert any("val_acuracy" in line and "did you mean 'val_accuracy'?" in line for line in err)
    assert not any("Traceback" in line for line in err)


def test_optuna_continues_and_leaves_failed_trials_out(train, tmp_path: Path) -> None:
    words = [*OPTUNA, *SMALL, "optimize=val_accuracy", "trainer.eval_every=1"]
    words += ["trainer.lr=choice(0.01,1e30)"]
    assert train(*words, "hydra.sweeper.n_trials=2")[0] == 0
    before = len(results(tmp_path))
    code, out, err = train(*words, "hydra.sweeper.n_trials=4")
    assert code == 0 and any("training loss is not finite" in line for line in err)
    assert sum("already there" in line for line in out) == before > 0
    every = results(tmp_path).items()
    found = {gamma: sum(seed["val_accuracy"] for seed in own) / 2 for gamma, own in every}
    best = yaml.safe_load((tmp_path / "outputs/.sweep/optimization_results.yaml").read_text())
    assert best["best_evaluated_value"] == max(found.values())
    assert found[best["best_evaluated_params"]["aggregator.gamma"]] == max(found.values())
    assert 0 < len(found) < 4
    fails = ["trainer.lr=choice(1e29,1e30)", "hydra.sweeper.n_trials=2"]
    code, _, err = train(*words[:-1], *fails)
    assert code == 1 and not any("Traceback" in line for line in err)


def test_distributions_of_swept_values() -> None:
    parse = OverridesParser.create().parse_override
    cases = {
        "a=interval(0,1)": {"low": 0.0, "high": 1.0, "log": False, "step": None},
        "a=int(interval(2,8))": {"low": 2, "high": 8, "log": False, "step": 1},
        "a=tag(log,interval(1e-4,1))": {"low": 1e-4, "high": 1.0, "log": True, "step": None},
        "a=choice(b,1)": {"choices": ("b", "1")},
        "a=range(1,4)": {"choices": ("1", "2", "3")},
    }
    for text, expected in cases.items():
        assert vars(distribution(parse(text))) | expected == vars(distribution(parse(text)))
    for text in ("a=interval(1,0)", "a=tag(log,interval(0,1))"):
        with pytest.raises(CompactHydraException, match="a="):
            distribution(parse(text))
