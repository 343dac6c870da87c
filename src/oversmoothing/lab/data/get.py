"""Downloads and verifies raw data.

    python scripts/fetch_data.py cora squirrel
    python scripts/fetch_data.py voc --root data

Exit codes: 0 if all data sets are complete, 2 if not.
"""

import argparse
import os
from pathlib import Path

from oversmoothing.errors import InputError, complain, meant
from oversmoothing.lab.data import voc_archives
from oversmoothing.lab.data.fetch import catalogue, ensure
from oversmoothing.lab.data.planetoid import FOLDERS, folders


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = "graphs (default: all four), or voc: VOC 2012 and SBD, a download of 3.4 GB"
    parser.add_argument("names", nargs="*", default=list(FOLDERS), help=known)
    parser.add_argument("--root", default=os.environ.get("DATA_ROOT", "data"), type=Path)
    options = parser.parse_args()
    return max([_fetch(name, options.root) for name in options.names])


def _fetch(name: str, root: Path) -> int:
    """Prints one line about a data set, and returns the exit code."""
    try:
        if name not in (known := [*FOLDERS, "voc"]):
            raise InputError(f"no such data set; {meant(name, known)}")
        if name == "voc":
            print(f"{name}: {voc_archives.prepare(root, voc_archives.sources())}")
            return 0
        count = 0
        for folder in folders(name):
            sources = catalogue()[folder]
            ensure(sources, root / "graphs" / folder)
            count += sum(len(source.files) for source in sources)
    except InputError as error:
        complain(f"{name}: {error}")
        return 2
    print(f"{name}: {count} files verified under {root / 'graphs'}")
    return 0
