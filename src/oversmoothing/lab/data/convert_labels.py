"""Converts pickled labels to JSON.

python scripts/convert_labels.py cls_labels_onehot.npy --out labels.json
"""

import argparse
import json
from pathlib import Path

from oversmoothing.lab.data.voc import read_onehot
from oversmoothing.lab.store.files import write_text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="cls_labels_onehot.npy")
    parser.add_argument("--out", required=True, type=Path, help="for data.labels=…")
    options = parser.parse_args()
    labels = read_onehot(options.file)
    write_text(options.out, json.dumps(labels, indent=0))
    print(f"{options.out}: labels of {len(labels)} images")
    return 0
