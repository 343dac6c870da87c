"""Config errors, found before any work and reported together, one line each.

Hydra stops at the first mistake, with a stack of its own; here the whole command is taken apart
first: every override, every combination of a sweep, every argument of every part.
"""

import itertools
import os
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.check_names import unknown_names
from oversmoothing.check_parts import part_problems

CONFIGS = Path(os.environ.get("OVERSMOOTHING_CONFIGS") or Path(__file__).parents[2] / "configs")
_ASKS_ONLY = ("--help", "-h", "--hydra-help", "--cfg", "-c", "--info", "-i", "--version", "-sc")


class Problems(Exception):
    """Every problem of a command.

    Args:
        lines: one line each.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def command(argv: list[str]) -> list[DictConfig]:
    """The configs that a command line asks for, checked; none when it only asks Hydra something.

    Raises:
        Problems: every mistake found.
    """
    if any(word.split("=")[0] in _ASKS_ONLY or word.startswith("--shell") for word in argv):
        return []
    return configs([word for word in argv if not word.startswith("-")], _is_multirun(argv))


def configs(overrides: list[str], multirun: bool = False) -> list[DictConfig]:
    """Composes and checks every combination of a list of overrides.

    Args:
        overrides: as on the command line, sweeps included.
        multirun: whether ``-m`` was given; an experiment can ask for it by itself.

    Raises:
        Problems: every mistake found.
    """
    parsed = _parse(overrides)
    hydras = [override for override in parsed if override.key_or_group.startswith("hydra")]
    problems, good = unknown_names([o for o in parsed if o not in hydras], CONFIGS)
    sweeps = _swept([*hydras, *good], multirun)
    composed = [compose_config(list(combination)) for combination in itertools.product(*sweeps)]
    problems += [line for config in composed for line in part_problems(config)]
    _stop_at(problems + _output_problems(composed[0]))
    return composed


def compose_config(overrides: list[str]) -> DictConfig:
    """One config, without checks of its parts.

    Raises:
        Problems: what Hydra itself refuses.
    """
    return _compose(overrides, with_hydra=False)


def _compose(overrides: list[str], with_hydra: bool) -> DictConfig:
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return compose("config", overrides, return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise Problems([" ".join(str(error).split())]) from error


def _parse(overrides: list[str]) -> list[Override]:
    parser, parsed, problems = OverridesParser.create(), [], []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException:
            problems.append(
                f"{text!r}: expected key=value; quote values that hold spaces or commas"
            )
    _stop_at(problems)
    return parsed


def _swept(parsed: list[Override], multirun: bool) -> list[list[str]]:
    """Per override its alternatives, the sweep that an experiment brings along included."""
    first = [_alternatives(override)[0] for override in parsed]
    hydra = _compose(first, with_hydra=True).hydra
    if not multirun and str(hydra.mode) != "RunMode.MULTIRUN":
        if swept := [o.input_line for o in parsed if o.is_sweep_override()]:
            raise Problems([f"{swept[0]!r} is a sweep: add -m, or quote a value that has commas"])
        return [[override.input_line] for override in parsed]
    given = {override.key_or_group for override in parsed}
    brought = OmegaConf.to_container(hydra.sweeper.get("params") or OmegaConf.create({}))
    own = _parse([f"{key}={value}" for key, value in brought.items() if key not in given])
    return [_alternatives(override) for override in [*own, *parsed]]


def _alternatives(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [override.input_line]
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _output_problems(config: DictConfig) -> list[str]:
    """The output folder must be writable before anything is computed for it."""
    folder = Path(config.paths.outputs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return [
            f"paths.outputs: {folder} cannot be written ({error.strerror}); "
            "choose another with paths.outputs=…"
        ]
    return []


def _is_multirun(argv: list[str]) -> bool:
    return any(word in ("-m", "--multirun") for word in argv)


def _stop_at(problems: list[str]) -> None:
    if problems:
        raise Problems(list(dict.fromkeys(problems)))
