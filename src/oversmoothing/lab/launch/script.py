"""What the commands share: exit codes, options, and overrides after ``--``."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from oversmoothing.errors import InputError, complain, lack, one_line_warnings
from oversmoothing.lab.store.files import results

STOPPED = "stopped; the same command continues from the last checkpoints"
OUTPUTS = Path("outputs")


def run_script(main: Callable[[], int | None], stopped: str = "stopped") -> None:
    """Exits with what ``main`` returns; with 2 and one line per mistake for bad input.

    Args:
        main: returns the exit code; None: 0.
        stopped: line to print after Ctrl-C; the exit code is then 1.
    """
    one_line_warnings()
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except InputError as error:
        complain(*error.lines)
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        if not (lacking := lack(error)):
            raise
        complain(lacking)
        sys.exit(1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C leaves no traceback
        sys.exit(stopped)
    sys.exit(code)


def split_words(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits a command at ``--``: arguments of the script, overrides for every run."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]


def as_override(folder: str | None) -> list[str]:
    """Returns ``--config-dir`` as an override, in a list; an empty list without a folder."""
    if folder is None:
        return []
    path = str(Path(folder).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return [f"hydra.searchpath=['file://{path}']"]


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


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds ``--trust`` to the parser of a command that reads the folder of a run."""
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
