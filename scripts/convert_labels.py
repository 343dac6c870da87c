"""Pickled labels as JSON: python scripts/convert_labels.py FILE.npy --out labels.json"""

import argparse
import json
import sys
from pathlib import Path

from oversmoothing.data.images.onehot import read_onehot
from oversmoothing.errors import InputError
from oversmoothing.store.files import write_text


def main() -> int:
    """Writes id -> class names; exit code 2 if the file is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="cls_labels_onehot.npy")
    parser.add_argument("--out", required=True, type=Path, help="for data.labels=…")
    arguments = parser.parse_args()
    try:
        labels = read_onehot(arguments.file)
        text = json.dumps(labels, indent=0)
        write_text(arguments.out, text)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{arguments.out}: labels of {len(labels)} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
