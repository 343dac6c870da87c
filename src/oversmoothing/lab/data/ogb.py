"""Node classification of the Open Graph Benchmark (Hu et al., 2020), from its raw files.

https://arxiv.org/abs/2005.00687. The package ``ogb`` is not used, since it asks questions on the
terminal.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.data.graph import Graph, build, kept
from oversmoothing.lab.store.files import alone, sha256, short_sha256
from oversmoothing.lab.store.weights import load_tensors, save_tensors

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Published:
    """The published properties of a data set.

    Args:
        counts: nodes, edges (rows of the file), features, classes.
        splits: training, validation and test nodes.
        kind: folder of the split.
        archive: name of the zip file without suffix, which is also the name of the folder in it.
    """

    counts: tuple[int, int, int, int]
    splits: tuple[int, int, int]
    kind: str
    archive: str


PUBLISHED = {
    "ogbn-arxiv": Published(
        (169_343, 1_166_243, 128, 40), (90_941, 29_799, 48_603), "time", "arxiv"
    ),
    "ogbn-products": Published(
        (2_449_029, 61_859_140, 100, 47), (196_615, 39_323, 2_213_091), "sales_ranking", "products"
    ),
}
URL = "https://snap.stanford.edu/ogb/data/nodeproppred"


@kept
def load(
    name: str = "ogbn-arxiv",
    undirected: bool = True,
    root: str = "data",
    cache: str = "outputs/cache",
) -> Graph:
    """Loads ogbn-arxiv or ogbn-products; the same arguments give the same object.

    The raw files must exist; they are not downloaded. They are compared with the published numbers
    of nodes, edges, features, classes and nodes of each split. Reading the text takes seconds
    (arxiv) or minutes (products), so the tensors are cached under the SHA-256 of all files, which
    is also the checksum of the graph.

    Args:
        name: of the data set.
        undirected: add the reverse of every edge, as is usual; False keeps the direction of
            citations.
        root: raw files are in ``<root>/graphs/ogbn_arxiv/raw`` and ``split``; it is only read.
        cache: folder for the tensors.

    Raises:
        InputError: the data set is not supported, or files are missing, damaged or of another
            version.
    """
    if name not in PUBLISHED:
        raise InputError(f"data.name: OGB has no {name!r} here; {meant(name, PUBLISHED)}")
    folder = Path(root) / "graphs" / name.replace("-", "_")
    files = _files(folder, PUBLISHED[name])
    checksum = _checksum(name, folder, files)
    tensors = _cached(Path(cache) / "graphs" / checksum, name, files)
    N = len(tensors["y"])
    masks = [torch.zeros(N, dtype=torch.bool).index_fill(0, tensors[p], True) for p in PARTS]
    x, y, edges = (tensors[key] for key in ("x", "y", "edges"))
    return build(name, x, y, edges, tuple(masks), N, undirected=undirected, checksum=checksum)


def _files(folder: Path, published: Published) -> dict[str, Path]:
    split = folder / "split" / published.kind
    raw = {"edges": "edge", "x": "node-feat", "y": "node-label", "num_nodes": "num-node-list"}
    files = {key: folder / "raw" / f"{file}.csv.gz" for key, file in raw.items()}
    return files | {part: split / f"{part}.csv.gz" for part in PARTS}


def _checksum(name: str, folder: Path, files: dict[str, Path]) -> str:
    """Hashes all files to twelve hex digits."""
    if missing := [path for path in files.values() if not path.exists()]:
        archive = PUBLISHED[name].archive
        raise InputError(
            f"{missing[0]}: no such file; download {URL}/{archive}.zip, unpack it, and move its "
            f"folder {archive} to {folder}"
        )
    lines = []
    for key, path in files.items():
        try:
            lines.append(f"{key} {sha256(path)}")
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); make it readable"
            ) from error
    return short_sha256("".join(lines).encode())


def _cached(folder: Path, name: str, files: dict[str, Path]) -> dict[str, Tensor]:
    """Returns the tensors of the files; the text is read once, by one process at a time."""
    path = folder / "tensors.pt"
    with alone(path, "paths.cache"):
        if path.exists():
            try:
                return load_tensors(path)
            except Exception:  # a damaged archive may raise any error
                warnings.warn(f"{path}: unreadable; it is written anew", stacklevel=2)
        read = _read(name, files)
        save_tensors(path, read, "paths.cache")
        return read


def _read(name: str, files: dict[str, Path]) -> dict[str, Tensor]:
    """Reads the text, and compares it with the published numbers."""
    types = {"x": np.float32, "y": np.float64}
    tables = {key: _table(path, types.get(key, np.int64)) for key, path in files.items()}
    tensors = {key: torch.from_numpy(table) for key, table in tables.items()}
    tensors["edges"] = tensors["edges"].T.contiguous()
    tensors |= {part: tensors[part].flatten() for part in PARTS}
    (N, F), E = tensors["x"].shape, tensors["edges"].shape[1]
    expected = PUBLISHED[name]
    found = {
        "nodes": (N, expected.counts[0]),
        "nodes by num-node-list": (int(tensors.pop("num_nodes").sum()), expected.counts[0]),
        "labels": (tensors["y"].numel(), expected.counts[0]),
        "edges": (E, expected.counts[1]),
        "features": (F, expected.counts[2]),
        "classes": (tensors["y"].unique().numel(), expected.counts[3]),
    }
    found |= {f"{p} nodes": (len(tensors[p].unique()), n) for p, n in zip(PARTS, expected.splits)}
    if wrong := [f"{got:,} {what}, not {n:,}" for what, (got, n) in found.items() if got != n]:
        raise InputError(
            f"{files['edges'].parent.parent}: this is not the published {name}: {wrong[0]}; "
            "download it again"
        )
    return tensors


def _table(path: Path, dtype: type) -> np.ndarray:
    try:
        return np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(
            f"{path}: damaged ({' '.join(str(error).split())}); download it again"
        ) from error
