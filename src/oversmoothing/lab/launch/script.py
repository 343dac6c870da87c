"""Functions that all scripts share: exit codes, and overrides after ``--``."""

import errno
import os
import signal
import sys
from collections.abc import Callable

from oversmoothing.errors import InputError, complain, lack, one_line_warnings

STOPPED = "stopped; the same command continues from the last checkpoints"


def run_script(main: Callable[[], int | None], stopped: str = "stopped") -> None:
    """Exits with what ``main`` returns; with 2 and one line per mistake for bad input.

    Args:
        main: returns the exit code; None: 0.
        stopped: line to print after Ctrl-C; the exit code is then 1.
    """
    one_line_warnings()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if problem := _surroundings():
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(2)
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except InputError as error:
        complain(*error.lines)
        sys.exit(2)
    except (OSError, RuntimeError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            complain(f"{error.filename}: {error.strerror}; choose a shorter path")
            sys.exit(2)
        if not (lacking := lack(error)):
            raise
        complain(lacking)
        sys.exit(1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C leaves no traceback
        sys.exit(stopped)
    sys.exit(code)


def _surroundings() -> str | None:
    """Says what is wrong with the working folder, or with what torchrun would set."""
    try:
        os.getcwd()
    except OSError:
        return "the working folder does not exist any more; change to another one"
    numbers = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    own = {name: os.environ.get(name, number) for name, number in numbers.items()}
    wrong = [f"{name}={value}" for name, value in own.items() if not value.isdecimal()]
    if not wrong and own["WORLD_SIZE"] != "1":
        needed = ("RANK", "MASTER_ADDR", "MASTER_PORT")
        wrong = [f"{name} is missing" for name in needed if name not in os.environ]
    if not wrong and int(own["RANK"]) >= int(own["WORLD_SIZE"]):
        wrong = [f"RANK={own['RANK']} with WORLD_SIZE={own['WORLD_SIZE']}"]
    way_out = "start the command with torchrun, or unset RANK and WORLD_SIZE"
    return f"{', '.join(wrong)}: not what torchrun sets; {way_out}" if wrong else None


def split_words(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits a command at ``--``: arguments of the script, overrides for every run."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]
