"""The error that a user can mend, and warnings in one line."""

import warnings


class InputError(ValueError):
    """Bad input. The message is one line: what is wrong, what was expected, the way out.

    `train.py` prints the message without a traceback: before any work with exit code 2, from a run
    that had begun with 1.
    """


def one_line_warnings() -> None:
    """Shows warnings as ``warning: text``, without the place in the code."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
