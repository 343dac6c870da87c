"""Read cls_labels_onehot.npy, the pickled label lists of weakly supervised segmentation, safely."""

import pickle
from pathlib import Path

import numpy as np

from oversmoothing.data.images.classes import class_names
from oversmoothing.data.unpickle import load
from oversmoothing.errors import InputError


def read_onehot(path: Path) -> dict[str, list[str]]:
    """Reads image id -> class names from a .npy file with a pickled dict of 0/1 vectors.

    Vectors of 20 entries are VOC's classes, of 80 entries COCO's. The pickle is read by the
    restricted unpickler, which builds nothing but arrays and dicts.

    Raises:
        InputError: the file cannot be read, holds something else, or would run code.
    """
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
            (header or np.lib.format.read_array_header_2_0)(file)
            content = load(file).item()
        return {str(name): _names(np.asarray(vector)) for name, vector in content.items()}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, KeyError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: expected a .npy file with a pickled dict ({why})") from error
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: more than arrays and dicts ({error}), so it is not read; set data.labels to "
            "masks or xml instead"
        ) from error


def _names(vector: np.ndarray) -> list[str]:
    kinds = {20: "voc", 80: "coco"}
    if vector.size not in kinds:
        raise ValueError(f"a vector of {vector.size}, not of 20 or 80, entries")
    names = class_names(kinds[vector.size])
    return [names[i] for i in vector.ravel().nonzero()[0]]
