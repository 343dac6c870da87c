"""What the commands share: exit codes, options, and overrides after ``--``."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from oversmoothing.errors import InputError, complain, lack, one_line_warnings
from oversmoothing.lab.store.files import require_writable, results

STOPPED = "stopped; the same command continues from the last checkpoints, if there are any"
OUTPUTS = Path("outputs")
DEVICE = "auto, cpu, cuda or cuda:1; default: auto"
OVERRIDES = "Words after -- are overrides for every run, such as -- device=cpu threads=1."


def run_script(main: Callable[[], int | None], stopped: str = "stopped") -> None:
    """Exits with what ``main`` returns; with 2 and one line per mistake for bad input.

    Args:
        main: returns the exit code; None: 0.
        stopped: line to print after Ctrl-C, with exit code 130, and after SIGTERM, with 143.
    """
    one_line_warnings()
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding lacks is printed as \xb1
        sys.stdout.reconfigure(errors="backslashreplace")
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun ends its processes itself
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what it still holds
        sys.exit(1)
    except InputError as error:
        complain(*error.lines)
        sys.exit(2)
    except (RuntimeError, MemoryError, ImportError, OSError) as error:
        if not (lacking := lack(error)):
            raise
        complain(lacking)
        sys.exit(2 if isinstance(error, (ImportError, OSError)) else 1)
    except KeyboardInterrupt as error:
        if os.environ.get("RANK", "0") == "0":  # under torchrun the others get the signal as well
            print(stopped, file=sys.stderr, flush=True)
        sys.exit(128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT))
    sys.exit(code)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def _terminate(*_: object) -> NoReturn:
    if hasattr(signal, "SIGCHLD"):  # torch's handler raises errors for workers that got it as well
        signal.signal(signal.SIGCHLD, lambda *_: None)  # SIG_DFL prints an error if one is pending
    raise Terminated


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake as every command does: in one line, without its usage.

    Args:
        doc: docstring of a module, which the help shows line by line.
        prog: the command; None: the script of this process.
        overrides: whether the command takes overrides after ``--``.
    """

    def __init__(self, doc: str, prog: str | None = None, overrides: bool = False) -> None:
        lines = argparse.RawDescriptionHelpFormatter
        about, end = doc.replace("``", "`").strip(), OVERRIDES if overrides else None
        super().__init__(
            prog, description=about, epilog=end, formatter_class=lines, allow_abbrev=False
        )

    def parse_args(self, *given: Any) -> argparse.Namespace:
        """Also raises InputError if the command would write its results where it cannot."""
        options = super().parse_args(*given)
        if "target" in options and not getattr(options, "plan", False):
            require_writable(options.target)
        return options

    def error(self, message: str) -> NoReturn:
        """Raises InputError: argparse's line, and where help is, without the usage."""
        raise InputError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


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
        digits = text.removeprefix("-")
        number = int(text) if digits.isdecimal() and len(digits) < 20 else None
        if number is None or not least <= number <= most:
            span = f"a whole number from {least} to {most:,}"
            raise argparse.ArgumentTypeError(f"expected {span}, got {text[:20]}")
        return number

    return read


SEED = whole(0, 2**63 - 1)


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
    parser.add_argument("table", help="name of a table in results/expected/*.yaml")
    add_publish(parser, "--results")
    for name, kind in (("data", "data sets"), ("methods", "rows"), ("columns", "columns")):
        parser.add_argument(f"--{name}", nargs="+", default=[], help=f"only these {kind}")
