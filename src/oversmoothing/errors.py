"""The error that a user can mend."""


class InputError(ValueError):
    """Bad input. The message is one line: what is wrong, what was expected, the way out.

    `train.py` prints the message without a traceback: before any work with exit code 2, from a run
    that had begun with 1.
    """
