"""Kinds of files that may come from others: valid samples, readers, and harmful tokens.

``fuzz.py`` puts the tokens of a kind into its samples.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oversmoothing.errors import InputError

Reader = Callable[[Path], Any]

NAMES = (
    b"os\nsystem",
    b"posix\nmkdir",
    b"builtins\neval",
    b"builtins\nbytearray",
    b"torch\nTensor",
)
NAMES += (b"numpy\nndarray", b"numpy\nload", b"numpy\nmemmap", b"subprocess\nPopen")
CALLS = tuple(b"c" + name + b"\n(X\x03\x00\x00\x00/hatR" for name in NAMES)
SIZES = (b"J\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x3f", b"\x85" * 999)
PICKLE = (*CALLS, *SIZES, b"R", b"b", b"\x81", b"0", b"2", b"s", b"u", b"a", b"e", b"}", b"]")
NPZ = (b"'|O'", b"(99999999999,)", b"PK\x05\x06", b"\xff\xff\xff\x7f")
YAML = (
    *(b"_target_: os.system\n", b"_target_: torch.load", b"_args_: [/hat]", b"${oc.env:HOME}"),
    *(b"&a ", b"*a", b"[" * 99, b"{" * 99, b"!!python/object/apply:os.mkdir [/hat]\n", b"? "),
    *(b"9" * 5000, b"${.}", b"${" * 50, b"null", b"0x" + b"f" * 999, b"\x00", b"\xff", b"- "),
)
SAFETENSORS = (b"9" * 20, b'"shape":[', b"\xff\xff\xff\x7f", b"[" * 999)


class Kind(NamedTuple):
    """A kind of file.

    Args:
        samples: makes valid files.
        reader: returns the function that reads a file; it raises ``InputError`` or refuses to
            unpickle.
        tokens: bytes that are inserted into a sample.
        name: of the file, if the reader needs a certain name.
    """

    samples: Callable[[], list[bytes]]
    reader: Callable[[], Reader]
    tokens: tuple[bytes, ...]
    name: str = "file"


def _pickles() -> list[bytes]:
    from scipy.sparse import csr_matrix

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = [csr_matrix(array), array, {"a": [array, 1.5, "b"]}, {0: [1, 2], 1: [0]}]
    return [pickle.dumps(value, protocol) for value in values for protocol in (2, 4)]


def _npys() -> list[bytes]:
    samples = []
    for label in (np.eye(20, dtype=np.float32)[3], np.ones(80), [0, 1] * 10):
        buffer = io.BytesIO()
        np.save(buffer, np.array({"2007_000027": label}, dtype=object))
        samples.append(buffer.getvalue())
    return samples


def _npzs() -> list[bytes]:
    samples = []
    for write in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        write(buffer, pixels=np.zeros((2, 3, 4), dtype=np.uint8), targets=np.arange(2))
        samples.append(buffer.getvalue())
    return samples


def _checkpoints() -> list[bytes]:
    import torch

    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    payload = {"state": {"network": state, "step": 3}, "seeds": [0], "logged_bytes": 10}
    samples = []
    for content in (state, payload):
        for zipped in (True, False):
            buffer = io.BytesIO()
            torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
            samples.append(buffer.getvalue())
    return samples


def _yamls() -> list[bytes]:
    from omegaconf import OmegaConf

    from oversmoothing.lab.config.compose import compose_config

    words = (["experiment=wsss_scenes"], ["experiment=seg_voc_subset", "aggregator=hem"])
    return [OmegaConf.to_yaml(compose_config(some)).encode() for some in words]


def _safetensors() -> list[bytes]:
    import torch
    from safetensors.torch import save

    return [save({"a": torch.ones(2, 3), "b": torch.zeros(1)}, {"extra_state": '{"c": {}}'})]


def _read_pickle() -> Reader:
    from oversmoothing.lab.data.unpickle import loads

    return lambda path: loads(path.read_bytes(), encoding="latin1")


def _read_npy() -> Reader:
    from oversmoothing.lab.data.voc import read_onehot

    return read_onehot


def _read_npz() -> Reader:
    from oversmoothing.lab.store.arrays import load

    def read(path: Path) -> None:
        try:
            load(path, ("pixels", "targets"))
        except ValueError as error:
            raise InputError(str(error)) from error

    return read


def _read_weights() -> Reader:
    from oversmoothing.lab.store.lookup import read_weights

    return read_weights


def _read_config() -> Reader:
    from oversmoothing.lab.config.parts import run_problems
    from oversmoothing.lab.store.lookup import config_of

    return lambda path: run_problems(config_of(path.parent, ("wsss", "segmentation")))


KINDS = {
    "pickle": Kind(_pickles, _read_pickle, PICKLE),
    "npy": Kind(_npys, _read_npy, PICKLE + NPZ),
    "npz": Kind(_npzs, _read_npz, NPZ),
    "checkpoint": Kind(_checkpoints, _read_weights, PICKLE + NPZ, "weights.pt"),
    "safetensors": Kind(_safetensors, _read_weights, SAFETENSORS, "model.safetensors"),
    "yaml": Kind(_yamls, _read_config, YAML, "config.yaml"),
}
