"""Heterophilous graphs with their official splits (Platonov et al., ICLR 2023, arXiv:2302.11640).

Neighbours are often of different classes. Chameleon and Squirrel come without the duplicate nodes
that leak test labels into the training set.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from oversmoothing.checks import check_choice
from oversmoothing.lab.data.fetch import Source, catalogue, checksum, ensure
from oversmoothing.lab.data.graph import Graph, build, kept
from oversmoothing.lab.data.splits import chosen

Name = Literal["chameleon_filtered", "squirrel_filtered", "actor", "minesweeper", "tolokers",
               "texas", "wisconsin", "cornell"]  # fmt: skip
FOLDER = "heterophilous"  # under <root>/graphs


@kept
def load(
    name: Name,
    split: int | Literal["each"] = "each",
    row_normalize: bool = False,
    root: str = "data",
) -> Graph:
    """Loads one of the graphs; its file is downloaded if missing, and always verified.

    Minesweeper and Tolokers have two classes and are scored by the area under the ROC curve, as in
    the benchmark.

    Args:
        name: of the graph.
        split: which of the ten official splits. ``each``: all ten, and the network of seed s is
            trained on split s modulo 10.
        row_normalize: divide each feature row by its sum + 1e-6.
        root: folder with the data; it is only read, unless the file must be downloaded.

    Raises:
        InputError: the name or the split is unknown, or the file is missing, altered or truncated.
    """
    files, folder = sources(name), Path(root) / "graphs" / FOLDER
    ensure(files, folder)
    with np.load(folder / f"{name}.npz") as file:
        found = {key: torch.from_numpy(file[key]) for key in file.files}
    every = tuple(found[f"{part}_masks"] for part in ("train", "val", "test"))
    return build(
        name=name,
        x=found["node_features"],
        y=found["node_labels"],
        edge_index=found["edges"].T,
        masks=chosen(name, every, split),
        num_nodes=len(found["node_labels"]),
        row_normalize=row_normalize,
        checksum=checksum(files),
        metric="roc_auc" if name in ("minesweeper", "tolokers") else "accuracy",
    )


def sources(name: Name) -> Sequence[Source]:
    """Returns the file of a graph, and where it is downloaded from.

    Raises:
        InputError: the name is unknown.
    """
    check_choice("data.name", name, get_args(Name))
    [source] = catalogue()[FOLDER]
    own = {f"{name}.npz": source.files[f"{name}.npz"]}
    return [Source(urls=source.urls, files=own)]
