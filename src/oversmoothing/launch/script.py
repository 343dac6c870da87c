"""What the scripts share: one line for bad input, and words for every run."""

import os
import sys
from collections.abc import Callable

from oversmoothing.config.compose import Problems
from oversmoothing.errors import InputError, one_line_warnings


def run_script(main: Callable[[], int]) -> None:
    """Exits with what ``main`` returns, or with 2 and one line for each of the user's mistakes."""
    one_line_warnings()
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (InputError, Problems) as error:
        lines = error.lines if isinstance(error, Problems) else [str(error)]
        print(*(f"error: {line}" for line in lines), sep="\n", file=sys.stderr)
        sys.exit(2)
    sys.exit(code)


def split_words(argv: list[str]) -> tuple[list[str], list[str]]:
    """A script's own words, and the overrides behind ``--`` that go to every run."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]
