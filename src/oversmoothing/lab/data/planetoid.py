"""Cora, CiteSeer, Chameleon and Squirrel, read by torch-geometric's data set classes."""

import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError
from oversmoothing.lab.data import fetch, pyg
from oversmoothing.lab.data.graph import Graph, build
from oversmoothing.lab.data.splits import NUM_SPLITS, chosen

if TYPE_CHECKING:
    from torch_geometric.data import Dataset


Name = Literal["cora", "citeseer", "chameleon", "squirrel"]
Protocol = Literal["public", "complement", "geom-gcn"]

# Data set -> its folder for the public masks, and for the Geom-GCN splits, under <root>/graphs.
FOLDERS = {
    "cora": ("Planetoid/Cora", "Planetoid/Cora/geom-gcn"),
    "citeseer": ("Planetoid/CiteSeer", "Planetoid/CiteSeer/geom-gcn"),
    "chameleon": ("WikipediaNetwork/chameleon/geom_gcn",) * 2,
    "squirrel": ("WikipediaNetwork/squirrel/geom_gcn",) * 2,
}


@lru_cache(maxsize=16)
def load(
    name: Name,
    protocol: Protocol = "complement",
    split: int | Literal["each"] = 0,
    row_normalize: bool = True,
    root: str = "data",
    cache: str = "outputs/cache",
) -> Graph:
    """Loads one of the four graphs; raw files are downloaded if missing, and always verified.

    The same arguments give the same object, so its tensors must not be changed. CiteSeer has 15
    nodes that are missing in its raw files; as in torch-geometric, they have no features and the
    label 0.

    Args:
        name: the data set.
        protocol: ``public``: the masks that come with the data (Chameleon and Squirrel: those of
            ``split``). ``complement``: the same training and validation nodes, but all others are
            test nodes, as in ContraNorm's code. ``geom-gcn``: the 48/32/20 % splits of Pei et al.,
            2020 (https://arxiv.org/abs/2002.05287).
        split: which of the ten splits; Cora and CiteSeer have only one unless ``geom-gcn``.
            ``each``: all ten, and the network of seed s is trained on split s modulo 10.
        row_normalize: divide each feature row by its sum + 1e-6.
        root: folder with the data; it is only read, unless files must be downloaded.
        cache: folder for torch-geometric's processed files.

    Raises:
        InputError: the name or protocol is unknown, the split does not exist, or raw files are
            missing, altered or truncated.
    """
    _require(name, protocol, split)
    folder = FOLDERS[name][protocol == "geom-gcn"]
    raw = Path(root) / "graphs" / folder / "raw"
    sources = fetch.catalogue()[f"{folder}/raw"]
    fetch.ensure(sources, raw)
    checksum = fetch.checksum(sources)
    kind, options = _dataset(folder)
    place = Path(root) / "graphs" / folder.split("/")[0]
    [data] = pyg.read(kind, options, place, Path(cache) / "graphs" / checksum)
    train, val, test = chosen(name, pyg.own_masks(name, data), split)
    return build(
        name=name,
        x=data.x,
        y=data.y,
        edge_index=data.edge_index,
        masks=(train, val, ~(train | val) if protocol == "complement" else test),
        num_nodes=data.num_nodes,
        row_normalize=row_normalize,
        checksum=checksum,
    )


def _require(name: Name, protocol: Protocol, split: int | str) -> None:
    """Raises InputError for options that are unknown or that the graph does not have."""
    check_choice("data.name", name, get_args(Name))
    check_choice("data.protocol", protocol, get_args(Protocol))
    if split != "each" and split not in range(NUM_SPLITS):
        raise InputError(f"data.split: expected 0 to {NUM_SPLITS - 1} or each, got {split}")
    if split and protocol != "geom-gcn" and len(set(FOLDERS[name])) > 1:
        raise InputError(
            f"data.split: {name} has ten splits only with data.protocol=geom-gcn; set it to 0"
        )


def folders(name: Name) -> list[str]:
    """Returns the folders of raw files of a data set, as keys of ``fetch.catalogue``.

    Raises:
        InputError: the name is unknown.
    """
    check_choice("data set", name, get_args(Name))
    return [f"{folder}/raw" for folder in dict.fromkeys(FOLDERS[name])]


def _dataset(folder: str) -> tuple[type["Dataset"], dict[str, Any]]:
    """Returns torch-geometric's class and its options for a folder: Planetoid/Cora/geom-gcn."""
    with warnings.catch_warnings():  # importing torch-geometric warns of torch.jit
        warnings.simplefilter("ignore", FutureWarning)
        from torch_geometric.datasets import Planetoid, WikipediaNetwork

    kind, name, *variant = folder.split("/")
    if kind == "WikipediaNetwork":
        return WikipediaNetwork, {"name": name, "geom_gcn_preprocess": True}
    return Planetoid, {"name": name, "split": variant[0] if variant else "public"}
