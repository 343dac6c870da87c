"""Reads Hydra's flags from a command line, for which Hydra has no public function."""

import argparse
from collections.abc import Callable
from pathlib import Path

from oversmoothing.errors import Problems, meant
from oversmoothing.lab.store.files import results

OUTPUTS = Path("outputs")
SWITCHES = (
    *("--help -h", "--hydra-help", "--resolve", "--run -r"),
    *("--multirun -m", "--shell-completion -sc"),
)
WITH_VALUE = ("--package -p", "--config-dir -cd")
REFUSED = ("--config-path -cp", "--config-name -cn", "--experimental-rerun")
SHOWN = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def read(argv: list[str]) -> argparse.Namespace:
    """Reads the flags, wherever they stand among the overrides.

    Returns:
        Flag -> value; ``overrides``; ``search_path``, which is ``--config-dir`` as an override; and
        ``problems``, one line each.

    Raises:
        Problems: a value that is missing or unknown.
    """

    def refuse(message: str) -> None:
        raise Problems([f"{message}; python train.py --hydra-help lists the flags"])

    parser = _parser()
    parser.error = refuse
    given, unknown = parser.parse_known_intermixed_args(argv)
    known = [flag.split()[0] for flag in (*SWITCHES, *WITH_VALUE)] + ["--cfg", "--info"]
    given.problems = [f"{word}: no such flag; {meant(word, known)}" for word in unknown]
    given.problems += _misused(given)
    given.search_path = search_path(given.config_dir)
    return given


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds ``--trust`` to the parser of a script that reads the folder of a run."""
    what = "run classes and functions of other packages that the run's config.yaml names"
    parser.add_argument("--trust", action="store_true", help=what)


def add_publish(parser: argparse.ArgumentParser, other: str = "") -> None:
    """Adds ``--publish``; ``target`` is the folder to write results to, by default ``outputs``.

    Args:
        parser: of a command whose results git may track.
        other: option that names a folder of results to use instead of the repository's.
    """
    group = parser.add_mutually_exclusive_group()
    what = "write into results/ and docs/, which git tracks, instead of outputs/"
    kind = {"action": "store_const", "const": results(), "default": OUTPUTS}
    group.add_argument("--publish", dest="target", help=what, **kind)
    if other:
        what = "read and write this folder of results"
        group.add_argument(other, dest="target", metavar="FOLDER", type=Path, help=what)


def records_of(target: Path) -> Path:
    """Returns the folder of the records that a command reads which writes to ``target``."""
    return results() if target == OUTPUTS else target


def add_cells(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a table, its cells, and where it is written."""
    parser.add_argument("table", help="name in results/expected/*.yaml")
    add_publish(parser, "--results")
    for name, kind in (("data", "data sets"), ("methods", "rows"), ("columns", "columns")):
        parser.add_argument(f"--{name}", nargs="*", default=[], help=f"only these {kind}")


def whole(least: int = 1, most: int = 1_000_000) -> Callable[[str], int]:
    """Returns an argument type for whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        number = int(text) if len(text) < 20 else most + 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most:,}, got {text[:20]}")
        return number

    read.__name__ = "int"  # argparse shows it in errors
    return read


SEED = whole(0, 2**63 - 1)


def _misused(given: argparse.Namespace) -> list[str]:
    """Lists flags that are not supported, or not in this combination."""
    problems = []
    for flag in (flags.split()[0] for flags in REFUSED):
        if getattr(given, flag.strip("-").replace("-", "_")):
            problems.append(f"{flag}: not offered here; --config-dir adds a folder of configs")
    modes = {name: getattr(given, name) for name in ("cfg", "info", "multirun", "run")}
    if len(chosen := [f"--{name}" for name, value in modes.items() if value]) > 1:
        problems.append(f"{' and '.join(chosen)}: only one of them at a time")
    if (given.resolve or given.package) and not (given.cfg or given.help):
        problems.append("--resolve and --package: only with --cfg job")
    if given.config_dir and any("hydra.searchpath" in word for word in given.overrides):
        problems.append("--config-dir: give all folders in hydra.searchpath, or none")
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("overrides", nargs="*")
    for flags in SWITCHES:
        parser.add_argument(*flags.split(), action="store_true")
    for flags in (*WITH_VALUE, *REFUSED):
        parser.add_argument(*flags.split())
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=SHOWN)
    return parser


def search_path(folder: str | None) -> list[str]:
    """Returns ``--config-dir`` as an override, in a list; an empty list without a folder."""
    if folder is None:
        return []
    path = str(Path(folder).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return [f"hydra.searchpath=['file://{path}']"]
