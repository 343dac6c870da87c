"""Unknown groups, options and keys of a command line, with what was probably meant."""

from difflib import get_close_matches
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf


def unknown_names(overrides: list[Override], folder: Path) -> tuple[list[str], list[Override]]:
    """One line for every name that does not exist, and the overrides that have none.

    Args:
        overrides: parsed, without Hydra's own.
        folder: of the configs.
    """
    groups = {path.name for path in folder.iterdir() if path.is_dir()}
    problems, good, unclear = [], [], set()
    for override in overrides:
        if override.key_or_group in groups:
            found = _unknown_options(override, folder)
            problems += found
            unclear |= {override.package or override.key_or_group} if found else set()
            good += [] if found else [override]
    chosen = list(good)
    for override in (o for o in overrides if o.key_or_group not in groups):
        if override.key_or_group.split(".")[0] in unclear:
            continue  # the keys of a group are known only with its option
        found = _unknown_key(override, chosen, groups, folder)
        problems += found
        good += [] if found else [override]
    return problems, good


def meant(name: str, candidates: list[str]) -> str:
    """``; did you mean 'x'?`` where a candidate comes close, else the list of candidates."""
    close = get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(candidates))}"


def _unknown_options(override: Override, folder: Path) -> list[str]:
    group = override.key_or_group
    options = [path.stem for path in (folder / group).rglob("*.yaml")]
    values = _values(override)
    unknown = [value for value in values if value not in (*options, "null")]
    where = override.get_key_element()
    return [f"{where}: there is no {value!r}; {meant(value, options)}" for value in unknown]


def _values(override: Override) -> list[str]:
    """The options that an override names, several in a sweep."""
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [str(override.get_value_string())]


def _unknown_key(
    override: Override, chosen: list[Override], groups: set[str], folder: Path
) -> list[str]:
    key = override.key_or_group
    for config in _configs_of(chosen, folder):
        known = _all_keys(config)
        exists = key in known
        if override.is_add() and not exists:
            return [f"+{key}: cannot add a key that nothing reads; {meant(key, known)}"]
        if not exists:
            names = [*known, *groups] if "." not in key else known
            return [f"{key}: no such key; {meant(key, names)}"]
    return []


def _configs_of(chosen: list[Override], folder: Path) -> list[DictConfig]:
    """What the chosen groups compose to: one config per option of a swept group."""
    fixed = [o.input_line for o in chosen if not o.is_sweep_override()]
    swept = [o for o in chosen if o.is_sweep_override()]
    alternatives = [[f"{o.get_key_element()}={v}"] for o in swept for v in _values(o)] or [[]]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base="1.3"):
        return [compose("config", [*fixed, *alternative]) for alternative in alternatives]


def _all_keys(node: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for name in node:
        keys.append(f"{prefix}{name}")
        if OmegaConf.is_dict(child := node._get_node(name)):
            keys += _all_keys(child, f"{prefix}{name}.")
    return keys
