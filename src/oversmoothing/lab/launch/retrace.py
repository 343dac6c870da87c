"""Finds the command of a run from its config."""

import json
import shlex
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.lab.launch.config import CONFIGS, compose_config, flat, options
from oversmoothing.lab.store.identity import IDENTITY, run_id, short_name

Keys = dict[str, Any]


def command_of(config: DictConfig, seed: int) -> str | None:
    """Returns a short command that trains this run with one seed; None if none was found.

    The command starts from the experiment with the fewest differences, or else from the task alone.
    It is returned only if its config has the id of the run.
    """
    wanted, task = _keys(config) | {"seeds": [seed]}, short_name(config.task)
    names = options("experiment", [CONFIGS])
    near = [[f"experiment={name}"] for name in names if name.startswith(task[:3])]  # seg_…, wsss_…
    near = sorted(near, key=lambda words: _distance(words, wanted))[:1]
    for start in (*near, [f"task={task}"]):
        words = _completed(start, wanted)
        if words and run_id(compose_config(words)) == run_id(config):
            return " ".join(["python train.py", *map(shlex.quote, words)])
    return None


def _completed(words: list[str], wanted: Keys) -> list[str]:
    """Adds options of groups with another ``_target_``, then keys; [] if a key does not exist."""
    own = _keys(compose_config(words))
    for part in IDENTITY:
        target = f"{part}._target_"
        if own.get(target) != wanted.get(target):
            group, at = ("aggregator", "@then") if part == "then" else (part, "")
            names = [
                n for n in options(group, [CONFIGS]) if _target(group, n) == wanted.get(target)
            ]
            choices = [[*words, f"{group}{at}={name}"] for name in names]
            words = min(choices, key=lambda words: _distance(words, wanted), default=words)
    own = _keys(compose_config(words))
    differing = [key for key in wanted if key not in own or own[key] != wanted[key]]
    if any(key not in own for key in differing):
        return []
    return [*words, *(f"{key}={_value(wanted[key])}" for key in differing)]


def _target(group: str, name: str) -> str | None:
    """Returns the ``_target_`` of an option of a group, or of the option that it extends."""
    node = OmegaConf.load(CONFIGS / group / f"{name}.yaml")
    extended = [base for base in node.get("defaults") or [] if isinstance(base, str)]
    return node.get("_target_") or next(
        (_target(group, n) for n in extended if n != "_self_"), None
    )


def _keys(config: DictConfig) -> Keys:
    """Returns dotted keys and values of the parts and the seeds, interpolations unresolved."""
    plain = OmegaConf.to_container(config, resolve=False)
    whole = flat({key: plain.get(key) for key in (*IDENTITY, "seeds")})
    return {key: value for key, value in whole.items() if not isinstance(value, dict)}


def _distance(words: list[str], wanted: Keys) -> int:
    """Counts the keys in which a command differs; a different class counts as 10."""
    own = _keys(compose_config(words))
    keys = [key for key in own.keys() | wanted.keys() if own.get(key, ...) != wanted.get(key, ...)]
    return sum(10 if key.endswith("_target_") else 1 for key in keys)


def _value(value: Any) -> str:
    """Formats a value for an override."""
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)
