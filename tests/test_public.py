"""The public names: each is there, and type checkers see the same ones."""

import ast
import subprocess
import sys
from pathlib import Path

import oversmoothing as osm


def test_every_public_name_resolves() -> None:
    assert all(getattr(osm, name) is not None for name in osm.__all__)
    assert set(osm.__all__) <= set(dir(osm))


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(Path(osm.__file__).read_text("utf-8"))
    checked = next(n for n in tree.body if isinstance(n, ast.If))
    found = {alias.asname for node in checked.body for alias in node.names}
    assert found | {"__version__"} == set(osm.__all__)


def test_metrics_are_found_without_their_modules() -> None:
    assert osm.metrics.effective_rank is osm.metrics.smoothness.effective_rank
    assert all(callable(getattr(osm.metrics, name)) for name in osm.metrics.__all__)


def test_a_layer_loads_few_modules() -> None:
    """A layer needs no adapters, no processes and nothing of the lab."""
    code = (
        "import sys, oversmoothing as osm; osm.Centered;"
        "print(*(name for name in sys.modules if name.startswith('oversmoothing')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    names = found.decode().split()
    assert len(names) < 10 and not any("distributed" in n or ".lab" in n for n in names)
