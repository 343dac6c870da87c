"""Functions that all scripts share: exit codes, and overrides after ``--``."""

import os
import signal
import sys
from collections.abc import Callable

from oversmoothing.errors import InputError, complain, one_line_warnings

STOPPED = "stopped; the same command continues from the last checkpoints"


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
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C leaves no traceback
        sys.exit(stopped)
    sys.exit(code)


def split_words(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits a command at ``--``: arguments of the script, overrides for every run."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]
