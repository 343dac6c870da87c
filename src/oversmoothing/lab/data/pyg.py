"""The data sets of torch-geometric, with their processed files in the cache."""

import contextlib
import http.client
import importlib.metadata
import inspect
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from oversmoothing.errors import InputError, described, meant, reason_of, shortened
from oversmoothing.lab.arguments import is_required, signature, signature_problems
from oversmoothing.lab.data import splits
from oversmoothing.lab.data.graph import Graph, build, kept, labels
from oversmoothing.lab.data.loading import seeded
from oversmoothing.lab.store.files import FORBIDDEN, alone, offline, short_sha256

if TYPE_CHECKING:
    from torch_geometric.data import Data, Dataset


@kept
def load(
    dataset: str = "HeterophilousGraphDataset",
    options: dict[str, Any] | None = None,
    name: str | None = None,
    split: int | Literal["each"] = 0,
    split_sizes: list[float] | None = None,
    row_normalize: bool = False,
    undirected: bool = True,
    weights: bool = True,
    seed: int = 0,
    root: str = "data",
    cache: str = "outputs/cache",
) -> Graph:
    """Loads a data set of ``torch_geometric.datasets``; the same arguments give the same object.

    torch-geometric downloads missing raw files and does not verify them. The checksum of the graph
    is computed from its features, labels, edges and weights.

    Args:
        dataset: a class, such as ``HeterophilousGraphDataset``, ``WikiCS``, ``Actor``.
        options: of the class, such as ``{name: Roman-empire}``.
        name: of the graph in messages; None: ``dataset``.
        split: which of several splits; ``each``: all of them, and the network of seed s is trained
            on split s modulo their number.
        split_sizes: None: the data set's own masks. Otherwise ten random splits are drawn, by
            fractions of every class, such as [0.6, 0.2, 0.2], or by numbers of training nodes of
            every class, validation nodes and test nodes, such as [20, 500, 1000].
        row_normalize: divide each feature row by its sum + 1e-6.
        undirected: add the reverse of every edge; False keeps the data set's directions.
        weights: use edge weights, if there are any.
        seed: of random splits, and of a data set that draws its graph.
        root: raw files are in ``<root>/graphs/<dataset>``; it is written only to download.
        cache: folder for torch-geometric's processed files.

    Raises:
        InputError: a name or an option is unknown, files are not available, or the data set is of
            another kind.
    """
    kind = _find(dataset)
    _check_options(kind, options or {})
    key = json.dumps([dataset, options or {}, seed, str(Path(root).resolve())], sort_keys=True)
    folder = f"{dataset}-{short_sha256(key.encode())}"
    found = read(
        kind, options or {}, Path(root) / "graphs" / dataset, Path(cache) / "graphs" / folder, seed
    )
    name = name or dataset
    data = _one_graph(name, found)
    if split_sizes is None:
        masks = own_masks(name, data)
    else:
        masks = splits.drawn(name, labels(name, data.y, data.num_nodes), split_sizes, seed)
    return build(
        name=name,
        x=data.x,
        y=data.y,
        edge_index=data.edge_index,
        masks=splits.chosen(name, masks, split),
        num_nodes=data.num_nodes,
        weights=_weights(name, data) if weights else None,
        undirected=undirected,
        row_normalize=row_normalize,
    )


def _one_graph(name: str, dataset: "Dataset") -> "Data":
    """Returns the only graph of a data set; checks that it has nodes and edges of one type."""
    from torch_geometric.data import Data, HeteroData

    if len(dataset) != 1:
        raise InputError(
            f"data {name}: it has {len(dataset)} graphs; choose a data set of one graph, whose "
            "nodes are classified"
        )
    data = dataset[0]
    if isinstance(data, HeteroData):
        kinds = ", ".join(data.node_types)
        raise InputError(
            f"data {name}: its nodes are of several types ({kinds}); choose a data set whose nodes "
            "and edges are all of one type"
        )
    if not isinstance(data, Data):
        raise InputError(
            f"data {name}: it is not a graph of nodes and edges; choose another data set"
        )
    return data


def own_masks(name: str, data: "Data") -> splits.Masks:
    """Returns the masks of a data set, (splits, N); raises InputError if one is missing."""
    masks = [getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")]
    if any(mask is None for mask in masks):
        lacks = "no masks" if all(mask is None for mask in masks) else "not all three masks"
        raise InputError(
            f"data {name}: it comes with {lacks}; draw ten splits with "
            "data.split_sizes=[0.6,0.2,0.2] (fractions of training, validation and test nodes) or "
            "[20,500,1000] (training nodes of a class, validation and test nodes)"
        )
    rows = [mask.bool().view(data.num_nodes, -1).T for mask in masks]
    number = max(len(mask) for mask in rows)
    return tuple(mask.expand(number, -1).contiguous() for mask in rows)


def _weights(name: str, data: "Data") -> Tensor | None:
    """Returns the edge weights: ``edge_weight``, or ``edge_attr`` if it has only one column."""
    if data.edge_weight is not None or data.edge_attr is None:
        return data.edge_weight
    if (columns := data.edge_attr.shape[1:].numel()) > 1:
        warnings.warn(f"data {name}: {columns} attributes of every edge are left out", stacklevel=2)
        return None
    return data.edge_attr


def read(
    kind: type["Dataset"], options: dict[str, Any], root: Path, cache: Path, seed: int = 0
) -> "Dataset":
    """Builds a data set; raw files are downloaded if missing. One process at a time builds it.

    Args:
        kind: class of ``torch_geometric.datasets``.
        options: of the class.
        root: folder of the raw files; it is written only to download.
        cache: folder for torch-geometric's processed files, of this data set alone.
        seed: used if the data set draws its graph.

    Raises:
        InputError: files are missing or cannot be downloaded, a folder cannot be written, or the
            class refuses its options.
    """
    name = kind.__name__
    processed = cache.with_name(f"{cache.name}-pyg-{importlib.metadata.version('torch-geometric')}")
    with alone(processed / "files", "paths.cache"), all_seeded(seed):
        try:
            return _built(kind, options, root, processed / "files")
        except InputError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise _absent(name, root, error) from error
        except Exception as error:  # torch-geometric may raise any error
            raise InputError(
                f"data.options: {name} refuses {options} ({_reason(error)}); its documentation in "
                "torch_geometric.datasets names the values"
            ) from error


def _built(
    kind: type["Dataset"], options: dict[str, Any], root: Path, processed: Path
) -> "Dataset":
    """Builds the data set; damaged processed files are deleted and written anew."""
    made = _relocated(kind, root, processed)
    where = {"root": str(root)} if "root" in signature(kind)[0] else {}
    present = processed.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # pickles name moved parts of numpy
        try:
            return made(**where, **options)
        except Exception:
            if not present:
                raise
            shutil.rmtree(processed)
    warnings.warn(f"{processed}: unreadable; it is deleted and written anew", stacklevel=2)
    return made(**where, **options)


OURS = ("root", "transform", "pre_transform", "pre_filter", "force_reload", "log")


def _check_options(kind: type["Dataset"], options: dict[str, Any]) -> None:
    """Raises InputError if an option of a class is unknown, missing or of a wrong type."""
    known, hints = signature(kind)
    lines = signature_problems("data.options.", (known, hints), options, OURS)
    missing = [key for key in known if is_required(known[key]) and key not in (*options, *OURS)]
    if missing:
        key = f"data.options.{missing[0]}"
        raise InputError(f"{key}: {kind.__name__} needs it; add {key}=…")
    if lines:
        raise InputError(lines[0])


@contextlib.contextmanager
def all_seeded(seed: int) -> Iterator[None]:
    """Seeds Python's, numpy's and torch's random numbers, and restores their states."""
    with torch.random.fork_rng(devices=[]), seeded(seed):
        torch.manual_seed(seed)
        yield


def _find(name: str) -> type["Dataset"]:
    with warnings.catch_warnings():  # importing torch-geometric warns of torch.jit
        warnings.simplefilter("ignore", FutureWarning)
        import torch_geometric.datasets as library
        from torch_geometric.data import Dataset

    found = {key: getattr(library, key) for key in library.__all__}
    known = [k for k, v in found.items() if inspect.isclass(v) and issubclass(v, Dataset)]
    if name not in known:
        raise InputError(
            f"data.dataset: torch_geometric.datasets has no {name!r}; {meant(name, known)}"
        )
    return found[name]


def _relocated(kind: type["Dataset"], root: Path, processed: Path) -> type["Dataset"]:
    """Derives a class with its processed files in another folder and checked downloads."""
    from torch_geometric.data import Dataset

    def download(self: "Dataset") -> None:
        try:
            if offline():
                raise OSError(FORBIDDEN)
            kind.download(self)
        except (OSError, http.client.HTTPException) as error:
            files = self.raw_file_names
            raise _absent(kind.__name__, Path(self.raw_dir), error, files) from error

    own: dict[str, Any] = {"processed_dir": property(lambda _: str(processed))}
    if kind.download is not Dataset.download:
        own["download"] = download
    return type(kind.__name__, (kind,), own)


def _absent(name: str, folder: Path, error: Exception, files: Any = ()) -> InputError:
    names = [files] if isinstance(files, str) else list(files)
    named = f" ({', '.join(map(str, names[:6]))}{', …' if len(names) > 6 else ''})" if names else ""
    return InputError(
        f"{folder}: raw files of {name} are missing and were not downloaded "
        f"({_reason(error)}); put them there{named}, or run the command where there is a network "
        "and the folder can be written"
    )


def _reason(error: Exception) -> str:
    return shortened(reason_of(error), 240) if isinstance(error, OSError) else described(error)
