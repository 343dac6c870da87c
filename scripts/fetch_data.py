"""Downloads and verifies raw data: python scripts/fetch_data.py [names…] --root data"""

import argparse
import os
import sys
from pathlib import Path

from oversmoothing.data.fetch import catalogue, ensure
from oversmoothing.data.graphs.graphs import FOLDERS, folders
from oversmoothing.data.images import voc_archives
from oversmoothing.errors import InputError


def main() -> int:
    """Prints one line a data set; exit code 2 if one is not complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        default=list(FOLDERS),
        help="graphs (default: all four), or voc: VOC 2012 and SBD, 3.4 GB to download",
    )
    parser.add_argument("--root", default=os.environ.get("DATA_ROOT", "data"), type=Path)
    arguments = parser.parse_args()
    return max([_fetch(name, arguments.root) for name in arguments.names])


def _fetch(name: str, root: Path) -> int:
    try:
        if name == "voc":
            print(f"{name}: {voc_archives.prepare(root, voc_archives.sources())}")
            return 0
        count = 0
        for folder in folders(name):
            sources = catalogue()[folder]
            ensure(sources, root / "graphs" / folder)
            count += sum(len(source.files) for source in sources)
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(f"{name}: {count} files verified under {root / 'graphs'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
