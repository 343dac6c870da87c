"""Downloads and verifies raw data.

    oversmoothing data cora squirrel
    oversmoothing data voc --root data

Exit codes: 0 if all data sets are complete, 2 if not.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from oversmoothing.errors import InputError, complain, meant
from oversmoothing.lab.data import heterophilous, voc_archives
from oversmoothing.lab.data.fetch import Source, catalogue, ensure
from oversmoothing.lab.data.planetoid import FOLDERS, folders
from oversmoothing.lab.launch.script import Parser

GRAPHS = [*FOLDERS, *get_args(heterophilous.Name)]


def main() -> int:
    parser = Parser(__doc__)
    known = "graphs (default: all), or voc: VOC 2012 and SBD, a download of 3.4 GB"
    parser.add_argument("names", nargs="*", default=GRAPHS, help=known)
    parser.add_argument("--root", type=Path, default=os.environ.get("DATA_ROOT", "data"),
                        help="folder of all data; default: $DATA_ROOT, or data")  # fmt: skip
    options = parser.parse_args()
    return max([_fetch(name, options.root) for name in options.names])


def _fetch(name: str, root: Path) -> int:
    """Prints one line about a data set, and returns the exit code."""
    try:
        if name not in (known := [*GRAPHS, "voc"]):
            raise InputError(f"no such data set; {meant(name, known)}")
        if name == "voc":
            print(f"{name}: {voc_archives.prepare(root, voc_archives.sources())}")
            return 0
        count = 0
        for folder, sources in _raw(name).items():
            ensure(sources, root / "graphs" / folder)
            count += sum(len(source.files) for source in sources)
    except InputError as error:
        complain(f"{name}: {error}")
        return 2
    print(f"{name}: {count} files verified under {root / 'graphs'}")
    return 0


def _raw(name: str) -> dict[str, Sequence[Source]]:
    """Returns the raw files of a graph by folder under ``<root>/graphs``."""
    if name in FOLDERS:
        return {folder: catalogue()[folder] for folder in folders(name)}
    return {heterophilous.FOLDER: heterophilous.sources(name)}
