"""Finds a data set class of torch-geometric by its name, checks its options and reads it."""

import contextlib
import http.client
import inspect
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock

from oversmoothing.errors import InputError, meant, reason_of
from oversmoothing.lab.arguments import is_required, signature, signature_problems
from oversmoothing.lab.data.batches import seeded
from oversmoothing.lab.data.unpickle import restricted
from oversmoothing.lab.store.files import FORBIDDEN, offline

if TYPE_CHECKING:  # importing torch-geometric takes seconds
    from torch_geometric.data import Dataset

OURS = ("root", "transform", "pre_transform", "pre_filter", "force_reload", "log")


class DatasetClass:
    """A class of ``torch_geometric.datasets`` with options.

    Args:
        name: of the class.
        options: of its constructor.

    Raises:
        InputError: there is no such class, or an option is unknown or missing.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name, self.options = name, options
        self.kind = _find(name)
        known, hints = signature(self.kind)
        lines = signature_problems("data.options.", (known, hints), options, OURS)
        missing = [key for key in known if is_required(known[key]) and key not in (*options, *OURS)]
        if missing:
            key = f"data.options.{missing[0]}"
            raise InputError(f"{key}: {name} needs it; add {key}=…")
        if lines:
            raise InputError(lines[0])
        self.has_root = "root" in known

    def read(self, root: Path, processed: Path, seed: int) -> "Dataset":
        """Builds the data set; raw files are downloaded if missing.

        Pickles among its files may hold arrays and tensors only. Only one process at a time builds
        it.

        Args:
            root: folder of the raw files; it is written only to download.
            processed: folder for torch-geometric's processed files, of this data set alone.
            seed: used if the data set draws its graph.

        Raises:
            InputError: files are missing, cannot be downloaded or would run code, a folder cannot
                be written, or the class refuses its options.
        """
        try:
            processed.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise InputError(
                f"{processed}: cannot be written ({why}); choose another folder with paths.cache=…"
            ) from error
        with FileLock(processed / ".lock"), all_seeded(seed), restricted():
            try:
                return self._built(root, processed / "files")
            except InputError:
                raise
            except (OSError, http.client.HTTPException) as error:
                raise _absent(self.name, root, error) from error
            except Exception as error:  # torch-geometric may raise any error
                if "weights only" in str(error).lower() or "it names" in str(error):
                    raise InputError(
                        f"data {self.name}: a file below {root} holds more than arrays and tensors "
                        f"({_reason(error)}), so it is not read; delete it to download it again"
                    ) from error
                raise InputError(
                    f"data.options: {self.name} refuses {self.options} ({_reason(error)}); its "
                    "documentation in torch_geometric.datasets names the values"
                ) from error

    def _built(self, root: Path, processed: Path) -> "Dataset":
        """Builds the data set; damaged processed files are deleted and written anew."""
        kind = _relocated(self.kind, root, processed)
        where = {"root": str(root)} if self.has_root else {}
        present = processed.exists()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            try:
                return kind(**where, **self.options)
            except Exception:
                if not present:
                    raise
                shutil.rmtree(processed)
        warnings.warn(f"{processed}: unreadable; it is deleted and written anew", stacklevel=2)
        return kind(**where, **self.options)


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
            _remove_empty(Path(self.raw_dir), root)
            files = self.raw_file_names
            raise _absent(kind.__name__, Path(self.raw_dir), error, files) from error

    own: dict[str, Any] = {"processed_dir": property(lambda _: str(processed))}
    if kind.download is not Dataset.download:
        own["download"] = download
    return type(kind.__name__, (kind,), own)


def _remove_empty(folder: Path, root: Path) -> None:
    """Removes the empty folders that torch-geometric created for a download, up to ``root``."""
    with contextlib.suppress(OSError):  # stops at the first folder that is not empty
        while folder.is_relative_to(root):
            folder.rmdir()
            folder = folder.parent


def _absent(name: str, folder: Path, error: Exception, files: Any = ()) -> InputError:
    names = [files] if isinstance(files, str) else list(files)
    named = f" ({', '.join(map(str, names[:6]))}{', …' if len(names) > 6 else ''})" if names else ""
    return InputError(
        f"{folder}: raw files of {name} are missing and were not downloaded "
        f"({_reason(error)}); put them there{named}, or run the command where there is a network "
        "and the folder can be written"
    )


def _reason(error: Exception) -> str:
    text = reason_of(error)[:200]
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
