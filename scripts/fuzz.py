"""Reads mutated files of all kinds that may come from others, in a separate process.

    python scripts/fuzz.py --number 1000 --seed 1
    python scripts/fuzz.py --kinds checkpoint yaml

A file must be read or refused without a crash, without running code, without a hang, and with
bounded memory. Prints the counts; exit code 1 if any file fails this.
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
from pathlib import Path

from fuzz_kinds import KINDS, Reader

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script

SECONDS = 20  # for one file
MEMORY = 2**30  # largest number of bytes for reading a file
GOOD = ("read", "refused")
EVENTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.mkdir", "os.remove", "os.rename")
EVENTS += ("subprocess.Popen", "socket.connect", "ctypes.dlopen", "shutil.rmtree")


def fuzz(kind: str, n: int, seed: int = 0) -> dict[str, int]:
    """Reads n mutated files of a kind, and counts the outcomes.

    Args:
        kind: a key of ``KINDS``, or ``all``.
        n: number of files.
        seed: of the mutations.

    Returns:
        Counts of ``read`` and ``refused``, and of the failures ``traceback``, ``crash``, ``hang``,
        ``code`` and ``memory``.
    """
    draw = random.Random(f"{kind} {seed}")
    samples = {one: KINDS[one].samples() for one in (KINDS if kind == "all" else [kind])}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        paths = [_written(Path(folder) / f"{i:06}", samples, draw) for i in range(n)]
        while paths:
            said = _read_by_another(paths)
            counts.update(said)
            paths = paths[len(said) :]
    return dict(counts)


def _written(folder: Path, samples: dict[str, list[bytes]], draw: random.Random) -> Path:
    """Writes a mutated file of one of the kinds."""
    kind = draw.choice([*samples])
    path = folder / kind / KINDS[kind].name
    path.parent.mkdir(parents=True)
    path.write_bytes(mutated(draw.choice(samples[kind]), kind, draw))
    return path


def _read_by_another(paths: list[Path]) -> list[str]:
    """Returns the outcome of each file, up to the first that ends the process."""
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
    """Reads files, each as the kind given by its folder, and prints one word for each."""
    kinds, happened = sorted({path.parent.name for path in paths}), []
    readers = {kind: KINDS[kind].reader() for kind in kinds}
    sys.addaudithook(lambda event, _: happened.append(event) if event in EVENTS else None)
    used = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MEMORY, resource.RLIM_INFINITY))
    for path in paths:
        happened.clear()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.alarm(SECONDS)
        said = _outcome(readers[path.parent.name], path)
        signal.alarm(0)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print("code" if happened else "memory" if grown > MEMORY else said, flush=True)


def _outcome(read: Reader, path: Path) -> str:
    try:
        read(path)
        return "read"
    except (InputError, pickle.UnpicklingError):
        return "refused"
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "traceback"


def mutated(content: bytes, kind: str, draw: random.Random) -> bytes:
    """Makes a few changes to a file; in a zip file, mostly inside one of its parts."""
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
            whole[i : draw.choice((i, i, j))] = draw.choice(KINDS[kind].tokens)
    return bytes(whole)


def main() -> int:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
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
