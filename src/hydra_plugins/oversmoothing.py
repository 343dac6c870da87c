"""The sweeper ``hydra/sweeper=optuna``: each trial is a run whose swept values Optuna chooses.

The lab finds a finished run again and skips it, and the choices depend on the seed alone. So an
interrupted search continues with the same command, without a separate storage. Hydra loads
plugins only from the namespace ``hydra_plugins``.
"""

import io
import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.errors import CompactHydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig

from oversmoothing.errors import install


class Optuna(Sweeper):
    """Searches by a tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011).

    Args:
        n_trials: number of runs.
        n_jobs: runs that are chosen at a time; a launcher can start them in parallel.
        direction: minimize or maximize.
        seed: of the choices.
        params: swept keys and their values, as those of the command line.
    """

    def __init__(
        self, n_trials: int, n_jobs: int, direction: str, seed: int, params: DictConfig | None
    ) -> None:
        self.n_trials, self.n_jobs, self.params = n_trials, n_jobs, dict(params or {})
        self.direction, self.seed = direction, seed

    def setup(self, **given: Any) -> None:
        """Starts the study.

        Raises:
            CompactHydraException: a setting is out of range, or Optuna is not installed.
        """
        for name in ("n_trials", "n_jobs"):
            if not isinstance(number := getattr(self, name), int) or number < 1:
                raise _refused(f".{name}: expected a whole number from 1, got {number}")
        if self.direction not in ("minimize", "maximize"):
            raise _refused(f".direction: expected minimize or maximize, got {self.direction}")
        try:
            import optuna
        except ImportError as error:
            raise _refused(f": needs Optuna; {install('search')}") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        self.study = optuna.create_study(direction=self.direction, sampler=sampler)
        self.launcher = Plugins.instance().instantiate_launcher(**given)
        self.folder = Path(given["config"].hydra.sweep.dir)

    def sweep(self, arguments: list[str]) -> None:
        """Runs all trials, and writes the best values to ``optimization_results.yaml``.

        A failed trial gives Optuna no number, and the search goes on.

        Raises:
            CompactHydraException: all trials have failed.
        """
        words = [*(f"{key}={values}" for key, values in self.params.items()), *arguments]
        parsed = OverridesParser.create().parse_overrides(words)
        given = {override.get_key_element(): override for override in parsed}
        swept = {key: own for key, own in given.items() if own.is_sweep_override()}
        space = {key: distribution(own) for key, own in swept.items()}
        fixed = [own.input_line for key, own in given.items() if key not in swept]
        while left := self.n_trials - len(self.study.trials):
            trials = [self.study.ask(space) for _ in range(min(self.n_jobs, left))]
            chosen = [[f"{key}={v}" for key, v in trial.params.items()] for trial in trials]
            jobs = [[*fixed, *own] for own in chosen]
            self._tell(trials, self.launcher.launch(jobs, initial_job_idx=trials[0].number))
        done = [trial for trial in self.study.trials if trial.value is not None]
        if not done:
            raise CompactHydraException("no trial has a result; the lines above say why")
        best = {"params": self.study.best_params, "value": self.study.best_value}
        found = {"name": "optuna", **{f"best_evaluated_{key}": own for key, own in best.items()}}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "optimization_results.yaml"
        path.write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")
        shown = " ".join(f"{key}={value}" for key, value in best["params"].items())
        failed = f", {self.n_trials - len(done)} failed" * (len(done) < self.n_trials)
        print(f"best of {self.n_trials} trials{failed}: {best['value']:g} with {shown}", flush=True)

    def _tell(self, trials: Sequence[Any], jobs: Sequence[Any]) -> None:
        from optuna.trial import TrialState

        for trial, job in zip(trials, jobs, strict=True):
            try:
                with redirect_stderr(io.StringIO()):  # Hydra prints all overrides of a failed job
                    value = job.return_value
                self.study.tell(trial, value)
            except CompactHydraException as error:
                print(error, file=sys.stderr, flush=True)
                self.study.tell(trial, state=TrialState.FAIL)


def _refused(why: str) -> CompactHydraException:
    return CompactHydraException(f"error: hydra.sweeper{why}")


def distribution(override: Override) -> Any:
    """Returns the distribution of ``interval(…)``, ``int(interval(…))`` or listed values.

    An interval with the tag ``log`` is searched on a logarithmic scale.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    if not isinstance(value, IntervalSweep):
        return CategoricalDistribution([*override.sweep_string_iterator()])
    lowest = 0 if "log" in value.tags else -math.inf
    if not lowest < value.start <= value.end:
        raise CompactHydraException(
            f"error: {override.input_line}: expected interval(low, high) with low <= high, and low "
            "above 0 with the tag log"
        )
    whole = isinstance(value.start, int) and isinstance(value.end, int)
    kind = IntDistribution if whole else FloatDistribution
    return kind(value.start, value.end, log="log" in value.tags)
