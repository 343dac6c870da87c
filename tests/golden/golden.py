"""Proves that a change has lost nothing: give this after every commit that moves code.

    python tests/golden/golden.py                    all proofs, in some minutes
    python tests/golden/golden.py ids api            some of: runs, ids, api
    python tests/golden/golden.py runs --only wsss   commands whose name begins with this
    python tests/golden/golden.py api --write        the difference is wanted: rewrite api.json

- ``runs``: small runs of all tasks give the same ids, results, logs and weights, also after a stop.
  On the machine that has written ``runs.json`` they are equal bit for bit; on one with other
  instructions or another torch the ids are equal, and the results within a tolerance.
- ``ids``: ids and seeds of all experiments and of all cells of all tables.
- ``api``: parameters and defaults of all public names, and the keys and values of all options.

Exit code: 0 if all is equal, else 1.
"""

import json
import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
PROOFS = ("runs", "ids", "api")
SHOWN = 20  # most differences of a proof


def runs(options: Namespace, expected: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Runs the commands and the stopped ones; returns their descriptions and the differences."""
    import golden_described as of
    import golden_runs as own

    same = of.machine() == expected.get("machine", of.machine())
    exact = same or options.write
    if options.write and not same and (options.only or any(map(own.skipped, own.COMMANDS))):
        sys.exit("runs: written on another machine; set DATA_ROOT and leave --only out")
    if not exact:
        print("runs: written on another machine, so numbers are compared within a tolerance")
    wanted = [name for name in own.COMMANDS if name.startswith(options.only)]
    found, lines = dict(expected.get("runs", {})), []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(reversed(wanted) if options.reverse else wanted):
            if own.skipped(name):
                print(f"runs: {name}: skipped; set DATA_ROOT")
                continue
            fresh = own.golden(name, Path(folder, str(number)))
            if name in own.STOPPED:
                again = own.golden(name, Path(folder, f"{number}-stopped"), own.STOPPED[name])
                lines += of.differences(again, fresh, True, f"{name}, stopped")
            lines += of.differences(fresh, found.get(name), exact, name) * (not options.write)
            found[name] = fresh
    kept = {name: found[name] for name in own.COMMANDS if name in found}
    return {"machine": of.machine(), "runs": kept}, lines


def plain(name: str, expected: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Ids or API, and their differences from the committed ones."""
    import golden_contract as own
    from golden_described import differences

    found = json.loads(json.dumps(getattr(own, name)()))
    return found, differences(found, expected, True, name)


def proved(name: str, options: Namespace) -> bool:
    """Gives one proof and prints where it fails; rewrites its file if asked to."""
    path = HERE / f"{name}.json"
    expected = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found, lines = runs(options, expected) if name == "runs" else plain(name, expected)
    if options.write:
        lines = lines if name == "runs" else []
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(*(line[:300] for line in lines[:SHOWN]), sep="\n", end="\n" * bool(lines))
    print(f"{name}: {f'{len(lines)} differences' if lines else 'equal'}", flush=True)
    return not lines


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("proofs", nargs="*", metavar="PROOF", help=", ".join(PROOFS))
    parser.add_argument("--write", action="store_true", help="rewrite the committed files")
    parser.add_argument("--only", default="", help="runs whose name begins so")
    parser.add_argument("--reverse", action="store_true", help="runs in the reverse order")
    options = parser.parse_args()
    if unknown := set(options.proofs) - set(PROOFS):
        parser.error(f"no such proof: {', '.join(unknown)}; known: {', '.join(PROOFS)}")
    return 0 if all([proved(name, options) for name in options.proofs or PROOFS]) else 1


if __name__ == "__main__":
    sys.exit(main())
