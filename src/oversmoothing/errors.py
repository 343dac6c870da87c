"""Errors that a user can correct, and how they are shown."""

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

SHOWN, FEW = 40, 10  # most names in a message; so many are read at a glance
LACKS = {  # part of an error of torch -> what the system lacks, and the way out
    "DataLoader worker (pid": "a process that reads data was ended by the system, perhaps for lack "
    "of memory; use fewer with trainer.workers=… and task.evaluation.workers=…",
    **dict.fromkeys(
        ("allocate memory", "out of memory"),
        "out of memory; choose a smaller network, smaller inputs, smaller batches or fewer seeds; "
        "trainer=minibatch_cluster trains on parts of a graph",
    ),
}


class InputError(ValueError):
    """Bad input. The message is one line: what is wrong, what was expected, and the way out.

    Scripts print the message without a traceback. ``train.py`` exits with 2 if the error is raised
    before any work, and with 1 if a run raises it.
    """

    def __str__(self) -> str:
        """The message; line breaks of values in it, such as tensors, become spaces."""
        return " ".join(line.strip() for line in super().__str__().splitlines())

    @property
    def lines(self) -> list[str]:
        """The message, as a list of one line."""
        return [str(self)]

    @property
    def key(self) -> str:
        """What precedes the first colon of the first line, usually the argument, key or file."""
        return self.lines[0].partition(": ")[0]


class Absent(InputError):
    """A file of weights is not there. The data can be checked all the same."""


class Problems(InputError):
    """All mistakes in a command; the argument is a list with one line for each."""

    @property
    def lines(self) -> list[str]:
        """One line for each mistake."""
        return list(dict.fromkeys(self.args[0]))

    def __str__(self) -> str:
        return "\n".join(self.lines)


def meant(name: object, candidates: Iterable[str]) -> str:
    """Returns ``did you mean 'x'?`` if a candidate is similar, else up to ``SHOWN`` candidates.

    One that differs in its numbers only may not be meant: then the candidates follow, or stand
    alone if they are ``FEW``.
    """
    name, candidates = str(name), list(candidates)
    close = closest(name, {candidate: candidate for candidate in candidates})
    other = close not in (None, name) and re.split(r"\d+", close) == re.split(r"\d+", name)
    guess = f"did you mean {close!r}?"
    if close and not (other and len(candidates) <= SHOWN):
        return guess
    more = f", … ({len(candidates)} in all)" * (len(candidates) > SHOWN)
    known = f"known: {listed(sorted(candidates, key=_by_number)[:SHOWN])}{more}"
    return f"{guess} {known}" if close and len(candidates) > FEW else known


def listed(names: Sequence[str]) -> str:
    """Returns names with commas between them, in quotes if one has a comma itself."""
    return ", ".join(map(repr, names) if any("," in name for name in names) else names)


def _by_number(name: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def ends(names: Sequence[str]) -> str:
    """Returns names with commas between them; of many, the first two and the last one."""
    return ", ".join(names if len(names) < 5 else (*names[:2], "…", names[-1]))


def closest(name: str, candidates: Mapping[str, str], cutoff: float = 0.6) -> str | None:
    """Returns the value whose key is most similar to a name; ignores case.

    Args:
        cutoff: smallest similarity, from 0 to 1; None is returned if no key reaches it.
    """
    lower = {key.lower(): value for key, value in candidates.items()}
    close = get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)
    return lower[close[0]] if close else None


def install(extra: str) -> str:
    """Returns the command that installs an extra, for the end of an error message."""
    return f"run pip install '.[{extra}]' in a clone of the repository"


def complain(*lines: str) -> None:
    """Prints errors, one line each; under torchrun only the first process prints."""
    if os.environ.get("RANK", "0") == "0":
        text = "".join(f"error: {shortened(line)}\n" for line in lines)
        print(text, end="", file=sys.stderr)  # in one piece, since others may print as well


def reason_of(error: BaseException) -> str:
    """Returns an error's reason in one line: the system's text, else the message, else its type."""
    cause = getattr(error, "reason", error) if isinstance(error, OSError) else error  # URLError's
    text = " ".join(str(getattr(cause, "strerror", None) or cause).split())
    return text or type(error).__name__


def described(error: BaseException) -> str:
    """Returns type and message of an error of another library, in one line of limited length."""
    text = shortened(" ".join(str(error).split()), 240)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(line: str, most: int = 2000) -> str:
    """Returns a line, without its middle if it is longer than ``most`` characters."""
    half = most // 2
    return line if len(line) <= most else f"{line[:half]} … {line[-half:]}"


def lack(error: BaseException) -> str | None:
    """Returns a line on the resource, package or file that an error is about; None for others."""
    if isinstance(error, MemoryError):
        return LACKS["out of memory"]
    cause = error.__cause__ or error  # Hydra wraps the errors of what it builds
    if isinstance(cause, ModuleNotFoundError) and _is_required(cause):
        return f"needs {(cause.name or '').split('.')[0]}; {install('repro')}"
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"{cause.filename}: {reason_of(cause)}; check the path and its permissions"
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return "the disk is full; free it, and give the same command again"
    known = LACKS.items() if isinstance(error, RuntimeError) else ()
    return next((line for part, line in known if part in str(error)), None)


def _is_required(missing: ModuleNotFoundError) -> bool:
    """Whether this package or an installed one imports it, not the user's code or config."""
    files = [frame.filename for frame in traceback.extract_tb(missing.__traceback__)]
    last = next((file for file in reversed(files) if "importlib" not in file), "")
    ours = os.path.dirname(__file__) in last or "site-packages" in last
    by_name = (missing.name or "").startswith("oversmoothing") or f"{os.sep}hydra{os.sep}" in last
    return ours and not by_name


def one_line_warnings() -> None:
    """Shows warnings as ``warning: text``, without file and line."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
