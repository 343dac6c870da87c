"""Reads mutated files of every kind that others may have written, in a process of its own.

    python scripts/fuzz.py --number 1000 --seed 1
    python scripts/fuzz.py --kinds checkpoint yaml

A file must be read or refused: without a crash, without running code, without a hang, and with
bounded memory. Prints the counts; exit code 1 if any file did something else.
"""

import io
import json
import pickle
import random
import resource
import signal
import subprocess
import sys
import tempfile
import zipfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script

SECONDS = 20  # for one file
MEMORY = 2**30  # bytes that reading may take
GOOD = ("read", "refused")
EVENTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.mkdir", "os.remove", "os.rename")
EVENTS += ("subprocess.Popen", "socket.connect", "ctypes.dlopen", "shutil.rmtree")
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
TOKENS: dict[str, tuple[bytes, ...]] = {
    "pickle": (*CALLS, *SIZES, b"R", b"b", b"\x81", b"0", b"2", b"s", b"u", b"a", b"e", b"}", b"]"),
    "npz": (b"'|O'", b"(99999999999,)", b"PK\x05\x06", b"\xff\xff\xff\x7f"),
    "yaml": (
        *(b"_target_: os.system\n", b"_target_: torch.load", b"_args_: [/hat]", b"${oc.env:HOME}"),
        *(b"&a ", b"*a", b"[" * 99, b"{" * 99, b"!!python/object/apply:os.mkdir [/hat]\n", b"? "),
        *(b"9" * 5000, b"${.}", b"${" * 50, b"null", b"0x" + b"f" * 999, b"\x00", b"\xff", b"- "),
    ),
    "safetensors": (b"9" * 20, b'"shape":[', b"\xff\xff\xff\x7f", b"[" * 999),
}
TOKENS["npy"] = TOKENS["checkpoint"] = TOKENS["pickle"] + TOKENS["npz"]


def fuzz(kind: str, n: int, seed: int = 0) -> dict[str, int]:
    """Reads n mutated files of a kind, and counts what happened.

    Args:
        kind: a key of ``SAMPLES``, or ``all``.
        n: number of files.
        seed: of the mutations.

    Returns:
        Counts of ``read``, ``refused``, and of what must not be: ``traceback``, ``crash``,
        ``hang``, ``code`` and ``memory``.
    """
    draw = random.Random(f"{kind} {seed}")
    samples = {one: SAMPLES[one]() for one in (SAMPLES if kind == "all" else [kind])}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        paths = [_written(Path(folder) / f"{i:06}", samples, draw) for i in range(n)]
        while paths:
            said = _read_by_another(paths)
            counts.update(said)
            paths = paths[len(said) :]
    return dict(counts)


def _written(folder: Path, samples: dict[str, list[bytes]], draw: random.Random) -> Path:
    """A mutated file of one of the kinds."""
    kind = draw.choice([*samples])
    path = folder / kind / NAME.get(kind, f"file.{kind}")
    path.parent.mkdir(parents=True)
    path.write_bytes(mutated(draw.choice(samples[kind]), kind, draw))
    return path


def _read_by_another(paths: list[Path]) -> list[str]:
    """What became of each file, up to the first that ends the process."""
    command = [sys.executable, __file__, "--read"]
    names = "\n".join(map(str, paths))
    done = subprocess.run(command, input=names, capture_output=True, text=True, check=False)
    said = done.stdout.split()
    if done.returncode:
        said.append("hang" if done.returncode == -signal.SIGALRM else "crash")
    if {*said} - {*GOOD}:
        print(done.stderr[-2000:], file=sys.stderr)
    return said


def read_all(paths: list[Path]) -> None:
    """Reads files, each as the kind that its folder names, and prints a word for each."""
    kinds, happened = sorted({path.parent.name for path in paths}), []
    readers = {kind: READERS[kind]() for kind in kinds}
    sys.addaudithook(lambda event, _: happened.append(event) if event in EVENTS else None)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MEMORY, resource.RLIM_INFINITY))
    for path in paths:
        happened.clear()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.alarm(SECONDS)
        said = _outcome(readers[path.parent.name], path)
        signal.alarm(0)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print("code" if happened else "memory" if grown > MEMORY else said, flush=True)


def _outcome(read: Callable[[Path], Any], path: Path) -> str:
    try:
        read(path)
        return "read"
    except (InputError, pickle.UnpicklingError):
        return "refused"
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "traceback"


def mutated(content: bytes, kind: str, draw: random.Random) -> bytes:
    """A file with a few changes; of a zip file, mostly inside of one of its parts."""
    if content[:2] == b"PK" and draw.random() < 0.7:
        parts = zipfile.ZipFile(io.BytesIO(content))
        changed, out = draw.choice([*parts.namelist(), parts.namelist()[0]]), io.BytesIO()
        with zipfile.ZipFile(out, "w", draw.choice((zipfile.ZIP_STORED,) * 3 + (8,))) as archive:
            for name in parts.namelist():
                part = parts.read(name)
                archive.writestr(name, _changed(part, kind, draw) if name == changed else part)
        return out.getvalue()
    return _changed(content, kind, draw)


def _changed(content: bytes, kind: str, draw: random.Random) -> bytes:
    whole = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        i = draw.randrange(len(whole) + 1)
        j = min(len(whole), i + draw.choice((1, 2, 4, 30)))
        way = draw.randrange(6)
        if way == 0:
            whole[i:j] = b""
        elif way == 1:
            whole[i:j] = draw.randbytes(j - i)
        elif way == 2:
            whole[i:i] = whole[i:j] * draw.choice((1, 2, 500))
        elif way == 3 and draw.random() < 0.2:
            del whole[i:]
        else:
            whole[i : draw.choice((i, i, j))] = draw.choice(TOKENS[kind])
    return bytes(whole)


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

    from oversmoothing.config.compose import compose_config

    words = (["experiment=wsss_scenes"], ["experiment=seg_voc_subset", "aggregator=hem"])
    return [OmegaConf.to_yaml(compose_config(some)).encode() for some in words]


def _safetensors() -> list[bytes]:
    import torch
    from safetensors.torch import save

    return [save({"a": torch.ones(2, 3), "b": torch.zeros(1)}, {"extra_state": '{"c": {}}'})]


def _read_pickle() -> Callable[[Path], Any]:
    from oversmoothing.data.unpickle import loads

    return lambda path: loads(path.read_bytes(), encoding="latin1")


def _read_npy() -> Callable[[Path], Any]:
    from oversmoothing.data.images.voc_labels import read_onehot

    return read_onehot


def _read_npz() -> Callable[[Path], Any]:
    from oversmoothing.store.arrays import load

    def read(path: Path) -> None:
        try:
            load(path, ("pixels", "targets"))
        except ValueError as error:
            raise InputError(str(error)) from error

    return read


def _read_weights() -> Callable[[Path], Any]:
    from oversmoothing.store.lookup import read_weights

    return read_weights


def _read_config() -> Callable[[Path], Any]:
    from oversmoothing.config.parts import run_problems
    from oversmoothing.store.lookup import config_of

    return lambda path: run_problems(config_of(path.parent, ("wsss", "segmentation")))


NAME = {"yaml": "config.yaml", "safetensors": "model.safetensors", "checkpoint": "weights.pt"}
SAMPLES: dict[str, Callable[[], list[bytes]]] = {
    "pickle": _pickles,
    "npy": _npys,
    "npz": _npzs,
    "checkpoint": _checkpoints,
    "safetensors": _safetensors,
    "yaml": _yamls,
}
READERS: dict[str, Callable[[], Callable[[Path], Any]]] = {
    "pickle": _read_pickle,
    "npy": _read_npy,
    "npz": _read_npz,
    "checkpoint": _read_weights,
    "safetensors": _read_weights,
    "yaml": _read_config,
}


def main() -> int:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=SAMPLES, default=list(SAMPLES))
    parser.add_argument("--number", type=int, default=200, help="files of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--read", action="store_true", help="read the files that stdin names")
    options = parser.parse_args()
    if options.read:
        read_all([Path(line) for line in sys.stdin.read().splitlines()])
        return 0
    counts = {kind: fuzz(kind, options.number, options.seed) for kind in options.kinds}
    print(json.dumps(counts, indent=1))
    return int(any(word not in GOOD for found in counts.values() for word in found))


if __name__ == "__main__":
    run_script(main)
