"""The core needs torch and numpy only; the rest of the package is for the experiments."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/oversmoothing"
CORE = ("errors", "aggregators", "metrics", "adapters", "diagnosis")
FILES = [p for part in CORE for p in (PACKAGE / f"{part}.py", *(PACKAGE / part).rglob("*.py"))]
NAMES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path.exists()
]
# these are imported only for a model of their library, or on a GPU
LIBRARIES = (".adapters.hf", ".adapters.timm", ".adapters.pyg", ".aggregators.kernels.")
MODULES = sorted(name for name in NAMES if not any(part in name for part in LIBRARIES))
IMPORT = """
import importlib, sys

OPTIONAL = {
    "datasets", "filelock", "hydra", "jinja2", "lightning", "matplotlib", "mmseg", "omegaconf",
    "pandas", "PIL", "pydensecrf", "pytorch_lightning", "safetensors", "scipy", "sklearn", "timm",
    "torch_geometric", "torchvision", "transformers", "triton", "wandb", "yaml",
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

"""


def python(code: str) -> str:
    """Runs code in a process where no optional package can be imported; returns its output."""
    command = [sys.executable, "-c", IMPORT + code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_the_core_is_imported_without_optional_packages() -> None:
    """torch itself is imported first: it tries some of them."""
    assert len(MODULES) > 15
    code = f"import torch; sys.meta_path.insert(0, Missing())\nfor name in {MODULES}:\n"
    code += "    importlib.import_module(name)\n"
    python(code + "importlib.import_module('oversmoothing.adapters.names').known()")


def test_a_transformer_is_diagnosed_with_torch_and_numpy_only(tmp_path: Path) -> None:
    """Only the packages that torch itself requires can be imported beside them."""
    code = f"""
import os, re, runpy
from importlib.metadata import requires
import numpy, torch

known = {{"torch", "numpy", "oversmoothing", "collapse", *sys.stdlib_module_names}}
known |= {{re.split(r"[^\\w-]", line)[0].replace("-", "_") for line in requires("torch")}}
known |= {{name.partition(".")[0] for name in sys.modules}}

class Others:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in known:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Others())
os.chdir({str(tmp_path)!r})
runpy.run_path({str(PACKAGE.parents[1] / "examples/collapse.py")!r}, run_name="__main__")
"""
    said = python(code)
    assert "From layers.12 on" in said and "needs matplotlib" in said
    assert {path.name for path in (tmp_path / "outputs/diagnose").iterdir()} == {
        "collapse.csv",
        "collapse.txt",
    }


def test_the_package_alone_imports_no_torch() -> None:
    code = "import oversmoothing; print(oversmoothing.__version__, 'torch' in sys.modules)"
    assert python(code).split()[1:] == ["False"]
