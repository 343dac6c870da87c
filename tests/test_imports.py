"""Imports point down: which folder may import which."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src/oversmoothing"
FLOORS = (  # a folder imports its own modules, those of its floor's parents, and lower floors
    {"errors"},
    {"checks", "distributed"},
    {"aggregators", "metrics"},
    {"adapters"},
    {"diagnosis"},  # the library ends here
    {"lab.processes"},
    {"lab.store"},
    {"lab.arguments"},
    {"lab.backbones"},
    {"lab.data"},
    {"lab.drawing"},
    {"lab.training"},
    {"lab.tasks"},
    {"lab.launch"},
    {"lab.search"},
    {"lab.report"},
    {"lab.papers"},
    {"lab.figure", "lab.train"},
    {"__main__"},
)
SHARED_BY_TASKS = {f"lab.tasks.{name}" for name in ("base", "layers", "overlap", "rank", "splits")}


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


MODULES = {module(path): path for path in PACKAGE.rglob("*.py") if path.stem != "__init__"}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file names, also within functions; types alone do not count."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oversmoothing"):
            parent = node.module.removeprefix("oversmoothing").removeprefix(".")
            names = {f"{parent}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {name if name in MODULES else parent for name in names}
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            found |= {n.removeprefix("oversmoothing.") for n in names if n in MODULES}
    return found & MODULES.keys()


def folder(name: str) -> str:
    """Returns ``aggregators`` or ``lab.store`` for their modules; a module at the top itself."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "lab" else parts[0]


ARROWS = {name: imported(path) for name, path in MODULES.items()}
FLOOR = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}


def test_every_module_has_a_floor_and_few_lie_at_the_root() -> None:
    assert {folder(name) for name in MODULES} <= FLOOR.keys()
    assert len([name for name in MODULES if "." not in name]) <= 8


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name: str) -> None:
    own = folder(name)
    assert all(FLOOR[folder(n)] < FLOOR[own] for n in ARROWS[name] if folder(n) != own)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name.startswith("lab.tasks.")))
def test_a_task_imports_no_other_task(name: str) -> None:
    """So training an FCN imports no CAM, PAR or lattice."""

    def task(module: str) -> str:
        """``nodes`` of ``lab.tasks.nodes_minibatch``."""
        return module.split(".")[2].split("_")[0]

    others = {n for n in ARROWS[name] if n.startswith("lab.tasks.")} - SHARED_BY_TASKS
    assert {task(other) for other in others} <= {task(name)}


def test_no_circle() -> None:
    try:
        TopologicalSorter(ARROWS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_texts_are_read_as_they_are_written() -> None:
    """Files are read as UTF-8 in every locale."""
    assert not [path for path in MODULES.values() if ".read_text()" in path.read_text("utf-8")]


def test_private_parts_of_hydra_are_not_used() -> None:
    assert not [path for path in MODULES.values() if "hydra._internal" in path.read_text("utf-8")]
