"""Checks that overrides of recorded runs do not change which runs they are."""

from hydra.core.override_parser.types import Override

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.config.compose import compose_config, parse
from oversmoothing.lab.config.folders import SEARCH_PATH, search_path
from oversmoothing.lab.store.identity import may_decide


def other_runs(overrides: list[str]) -> list[str]:
    """Returns the overrides that may change the identity or the seeds of a run.

    Raises:
        Problems: a word is not an override.
    """
    parsed, problems = parse(overrides)
    if problems:
        raise Problems(problems)
    return [override.input_line for override in parsed if not _says_how(override)]


def same_runs(overrides: list[str]) -> None:
    """Checks that overrides do not put other runs into a table or figure.

    Raises:
        InputError: they do, or one is a sweep; the message names the allowed keys.
    """
    parsed = parse(overrides)[0]
    if absent := [path for path in search_path(parsed) if not path.is_dir()]:
        raise InputError(f"{absent[0]}: no such folder of configs; check --config-dir")
    for override in parsed:
        if override.is_sweep_override():
            raise InputError(f"{override.input_line}: expected one value; a table has no sweeps")
    if other := other_runs(overrides):
        raise InputError(
            f"overrides {' '.join(other)}: they may change which runs these are, or their seeds; "
            f"give only {', '.join(_keys())}, and use train.py for other runs"
        )


def _says_how(override: Override) -> bool:
    key = override.key_or_group
    known = key.split(".")[0] in compose_config([])
    return key == SEARCH_PATH or (known and not may_decide(key) and override.package is None)


def _keys() -> list[str]:
    return sorted(key for key in compose_config([]) if not may_decide(key))
