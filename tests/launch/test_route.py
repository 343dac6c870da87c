"""The route of γ from the command line to ``Centered.forward``."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRACE = """
import functools, json, runpy, sys, traceback
from pathlib import Path
from oversmoothing.aggregators.centered import Centered

ROOT, FILES = Path(sys.argv[1]), set()

def watched(function):
    @functools.wraps(function)
    def called(self, *args, **kwargs):
        FILES.update(frame.filename for frame in traceback.extract_stack())
        return function(self, *args, **kwargs)
    return called

Centered.__init__, Centered.forward = watched(Centered.__init__), watched(Centered.forward)
sys.argv[1:] = sys.argv[2:]
from oversmoothing.lab import train
code = train.main()
ours = [f for f in FILES if f.startswith(f"{ROOT}/src")]
print(json.dumps([code, sorted(f[len(str(ROOT)) + 1:] for f in ours)]))
"""


def test_gamma_takes_a_short_way(tmp_path: Path) -> None:
    words = ["aggregator=centered", "aggregator.gamma=-0.5", "trainer.epochs=2", "logger=none"]
    words += ["seeds=[0,1]", f"paths.outputs={tmp_path}", "data.num_nodes=400"]
    command = [sys.executable, "-c", TRACE, str(ROOT), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    code, files = json.loads(done.stdout.splitlines()[-1])
    assert code == 0 and 5 < len(files) <= 14, "\n".join(files)
