"""Sweepers that choose the runs: Hydra's plugins, which train.py gives a metric."""

import json
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException

from hydra_plugins.oversmoothing import distribution

SMALL = ["data.num_nodes=400", "trainer.epochs=4", "seeds=[0,1]", "logger=none", "threads=1"]
ENDS = '''
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


@dataclass
class Config:
    _target_: str = "hydra_plugins.ends.Ends"
    twice: bool = False


ConfigStore.instance().store(group="hydra/sweeper", name="ends", node=Config)


class Ends(Sweeper):
    """Tries both ends of an interval."""

    def __init__(self, twice):
        self.twice = twice

    def setup(self, **given):
        self.launcher = Plugins.instance().instantiate_launcher(**given)

    def sweep(self, arguments):
        parsed = OverridesParser.create().parse_overrides(arguments)
        [swept] = [override for override in parsed if override.is_interval_sweep()]
        fixed = [override.input_line for override in parsed if override is not swept]
        ends = [swept.value().start, swept.value().end]
        jobs = [[*fixed, f"{swept.key_or_group}={end}"] for end in ends]
        print("metrics", *[job.return_value for job in self.launcher.launch(jobs, 0)])
'''


@pytest.fixture
def ends(tmp_path: Path) -> str:
    """The folder of the plugin ``hydra/sweeper=ends``."""
    plugins = tmp_path / "path/hydra_plugins"
    plugins.mkdir(parents=True)
    (plugins / "ends.py").write_text(ENDS)
    return str(plugins.parent)


def results(folder: Path) -> dict[float, list[dict]]:
    """γ -> results of the seeds."""
    found = [json.loads(path.read_text()) for path in (folder / "outputs").glob("*/result.json")]
    return {r["config"]["aggregator"]["gamma"]: [*r["seeds"].values()] for r in found}


def test_a_sweeper_gets_the_mean_of_the_metric_over_the_seeds(
    train, ends: str, tmp_path: Path
) -> None:
    words = ["-m", "hydra/sweeper=ends", "aggregator=centered", *SMALL]
    words += ["aggregator.gamma=interval(-1.5,0)", "optimize=val_accuracy"]
    code, out, err = train(*words, path=ends)
    assert (code, err) == (0, [])
    found = results(tmp_path)
    means = [sum(seed["val_accuracy"] for seed in found[gamma]) / 2 for gamma in (-1.5, 0.0)]
    assert out[-1] == f"metrics {means[0]} {means[1]}"
    code, out, err = train(*words[:-1], "optimize=val_acuracy", path=ends)
    assert code == 1 and not any("metrics" in line for line in out)
    [line] = [line for line in err if line.startswith("error: ")]
    assert "'val_acuracy' is not there; did you mean 'val_accuracy'?" in line


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        ("trainer.lr=interval(1e29,1e30)", "training loss is not finite"),  # of the run
        ("backbone.depth=interval(2,4)", "backbone.depth: expected a whole number, got 2.0"),
    ],
)
def test_a_failed_trial_is_no_number(train, ends: str, swept: str, said: str) -> None:
    words = ["trainer.eval_every=1", "trainer.epochs=20", "optimize=val_accuracy"]
    code, out, err = train("-m", "hydra/sweeper=ends", *SMALL, *words, swept, path=ends)
    assert (code, out) == (1, [])
    [line] = [line for line in err if line.startswith("error: ")]
    assert said in line and not any("Traceback" in line for line in err)


def test_mistakes_are_found_before_the_first_trial(train, ends: str, tmp_path: Path) -> None:
    words = ["hydra.sweeper.twise=true", "aggregator.gama=interval(-1,0)", "trainer.lr=fast"]
    code, out, err = train("-m", "hydra/sweeper=ends", *words, path=ends)
    assert (code, out) == (2, [])
    assert [line.split(":")[1].strip() for line in err] == [
        "hydra.sweeper.twise",
        "aggregator.gama",
        "optimize",
        "trainer.lr",
    ]
    assert not (tmp_path / "outputs").exists()


def test_optuna_continues_and_leaves_failed_trials_out(train, tmp_path: Path) -> None:
    words = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.direction=maximize"]
    words += ["aggregator=centered", "aggregator.gamma=interval(-1.5,0)", "optimize=val_accuracy"]
    words += [*SMALL, "trainer.eval_every=1", "trainer.lr=choice(0.01,1e30)"]
    assert train("-m", *words[:1], "hydra.sweeper.n_trials=2", *words[2:])[0] == 0
    before = len(results(tmp_path))
    code, out, err = train("-m", *words)
    assert code == 0 and any("training loss is not finite" in line for line in err)
    assert sum("already there" in line for line in out) == before > 0
    every = results(tmp_path).items()
    found = {gamma: sum(seed["val_accuracy"] for seed in own) / 2 for gamma, own in every}
    best = yaml.safe_load((tmp_path / "outputs/.sweep/optimization_results.yaml").read_text())
    assert best["best_evaluated_value"] == max(found.values())
    assert found[best["best_evaluated_params"]["aggregator.gamma"]] == max(found.values())
    assert 0 < len(found) < 4
    code, _, err = train("-m", *words[:-1], "trainer.lr=choice(1e29,1e30)")
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
