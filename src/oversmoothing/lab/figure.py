"""Draws a figure, or computes another result that is not a table of runs.

    oversmoothing figure fig1 --jobs 2
    oversmoothing figure hem_fig3 --help

Names can be shortened: hem_fig3 means src/oversmoothing/lab/papers/hemnet_fig3.
"""

import fnmatch
import importlib
import pkgutil
import sys

from oversmoothing.errors import InputError
from oversmoothing.lab import papers


def main() -> int:
    name, *options = sys.argv[1:] or ["--help"]
    names = sorted(module.name for module in pkgutil.iter_modules(papers.__path__))
    if name in ("-h", "--help"):
        print(__doc__, "Names:", *names, sep="\n  ")
        return 0
    found = fnmatch.filter(names, f"*{name.replace('_', '*_')}*")
    if len(found) != 1:
        raise InputError(f"{name}: no figure; expected one of {', '.join(names)}")
    return importlib.import_module(f"{papers.__name__}.{found[0]}").main(options)
