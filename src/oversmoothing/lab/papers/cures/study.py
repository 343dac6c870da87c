"""The cells of the study and the runs that measure them, as ``study.yaml`` describes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import yaml

from oversmoothing.errors import InputError, meant


class Cell(NamedTuple):
    """A cell of the study: a method on a graph, in a network of one depth."""

    graph: str
    network: str
    layers: int
    method: str

    @property
    def command(self) -> str:
        """Command that measures the cell."""
        return (
            f"make cures GRAPHS={self.graph} NETWORKS={self.network} LAYERS={self.layers} "
            f"METHODS={self.method}"
        )


@dataclass(frozen=True)
class Study:
    """The content of ``study.yaml``; its comments explain the fields."""

    common: list[str]
    tuning: list[int]
    seeds: list[int]
    graphs: dict[str, dict[str, Any]]
    networks: dict[str, dict[str, Any]]
    dropouts: list[float]
    methods: dict[str, dict[str, Any]]

    def cells(self) -> list[Cell]:
        """All cells, by the order of their names in ``study.yaml``."""
        return [
            Cell(graph, network, layers, method)
            for graph in self.graphs
            for network, about in self.networks.items()
            for layers in about["layers"]
            for method in self.methods
            if graph in about.get("graphs", self.graphs)
        ]

    def candidates(self, cell: Cell) -> list[list[str]]:
        """Returns the overrides in which the candidates of a cell differ."""
        second = self._method(cell)["second"]
        return [[f"backbone.dropout={d}", *words] for d in self.dropouts for words in second]

    def words(self, cell: Cell, candidate: Sequence[str]) -> list[str]:
        """Returns the overrides of ``train.py`` for a candidate of a cell."""
        graph, network = self.graphs[cell.graph], self.networks[cell.network]
        own = network["overrides"] + self._method(cell)["overrides"]
        groups = [word for word in own if "." not in word.split("=")[0]]
        values = [word for word in own if word not in groups]
        size = f"backbone.depth={cell.layers}"
        return [*self.common, *graph["overrides"], *groups, size, *values, *candidate]

    def cost(self, cell: Cell) -> float:
        """Estimates the cost of a cell in arbitrary units; cheap cells are run first."""
        entries = self.graphs[cell.graph]["entries"] + 30_000  # dense products of a small graph
        factors = (self.networks[cell.network], self._method(cell))
        return cell.layers * entries * factors[0].get("cost", 1) * factors[1].get("cost", 1)

    def _method(self, cell: Cell) -> dict[str, Any]:
        """Returns the entry of ``study.yaml`` for the method in the network of a cell."""
        replaced = self.networks[cell.network].get("replace", {})
        return self.methods[cell.method] | replaced.get(cell.method, {})


@cache
def study() -> Study:
    """Reads ``study.yaml``."""
    text = (
        resources.files("oversmoothing.lab.papers.cures").joinpath("study.yaml").read_text("utf-8")
    )
    return Study(**yaml.safe_load(text))


def select(
    cells: Sequence[Cell],
    graphs: Sequence[str] = (),
    networks: Sequence[str] = (),
    layers: Sequence[int] = (),
    methods: Sequence[str] = (),
) -> list[Cell]:
    """Cells of these names; without names, all.

    Raises:
        InputError: a name that the study does not have.
    """
    wanted = {"graph": graphs, "network": networks, "layers": layers, "method": methods}
    for field, names in wanted.items():
        known = {str(getattr(cell, field)) for cell in cells}
        for name in names:
            if str(name) not in known:
                raise InputError(f"cures: no {field} {name!r}; {meant(str(name), sorted(known))}")
    return [c for c in cells if all(not v or getattr(c, f) in v for f, v in wanted.items())]
