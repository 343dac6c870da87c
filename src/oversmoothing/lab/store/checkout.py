"""Finds files other than code, in the repository or in an installed wheel."""

from pathlib import Path

from oversmoothing.errors import InputError

_PACKAGE = Path(__file__).parents[2]
_ABOVE = Path(__file__).parents[4]
CHECKOUT = _ABOVE if (_ABOVE / "pyproject.toml").is_file() else None  # None in a wheel
CONFIGS = (CHECKOUT or _PACKAGE) / "configs"


def results() -> Path:
    """Returns the folder of committed results.

    Raises:
        InputError: the package runs from a wheel, which has none.
    """
    if CHECKOUT is None:
        raise InputError(
            f"results: {_PACKAGE} is an installed wheel, which has no results/; clone the "
            "repository, and run `pip install -e '.[repro]'` in it"
        )
    return CHECKOUT / "results"
