"""Writes one page of all recorded runs, to filter and sort in a browser: ``oversmoothing report``.

A row is a run with all its recorded seeds, without the candidates of a study that were not chosen.
Runs of tables come from ``results/*.jsonl``, those of the study of methods from
``results/cures.csv``; the tables name their commands.
"""

import json
import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from oversmoothing.lab.report.results import records_beside
from oversmoothing.lab.report.tables import Cell, load
from oversmoothing.lab.store.files import read_csv, write_text
from oversmoothing.lab.store.identity import class_name, option, short_name
from oversmoothing.lab.store.results import look_up

TEMPLATE = "runs.html"
Line = dict[str, str]  # of a CSV
GROUPS = ("data", "backbone", "aggregator", "aggregator@then", "experiment")
SHOWN_APART = ("backbone.depth", "seeds", *GROUPS)  # keys that columns show, or the command
DIGITS = 4
NAMES = {"NoAggregator": "", "Centered": "centered", "DiffGroupNorm": "DGN"}  # as in the tables


@dataclass(frozen=True)
class Run:
    """A row of the page.

    Args:
        network: backbone, or for torch-geometric its convolution.
        method: aggregators, and skip connections and DropEdge of the backbone.
        settings: other overrides that tell it from the other runs of its experiment.
        metric: the first number that a table shows of it; ``mean`` and ``std`` (ddof = 1; None for
            one seed) are over all recorded seeds.
        values: of the metric, by seed.
        more: other metric -> mean and std.
        tables: that show it.
        where: it was run: versions, device, commit and time.
    """

    id: str
    data: str
    network: str
    depth: int | None
    method: str
    settings: str
    metric: str
    n: int
    mean: float | None
    std: float | None
    values: dict[str, float | None]
    more: dict[str, tuple[float | None, float | None]]
    command: str
    tables: tuple[str, ...]
    experiment: str
    where: str = ""


def write_runs(path: Path, results: Path, home: tuple[str, str]) -> None:
    """Writes the page of the records in a folder of results.

    Args:
        home: address and title of the page beside it that it links to.
    """
    rows = [asdict(run) for run in recorded_runs(results)]
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    page = resources.files("oversmoothing.lab.report").joinpath(TEMPLATE).read_text("utf-8")
    address, title = home
    page = page.replace("HOME_TITLE", title).replace("HOME", address)
    write_text(path, page.replace("/*ROWS*/[]", text))


def recorded_runs(results: Path) -> list[Run]:
    """Returns all recorded runs, sorted by data, network, depth and method."""
    runs = [*_of_tables(results), *_of_studies(results)]
    return sorted(runs, key=lambda r: (r.data, r.network, r.depth or 0, r.method, r.settings, r.id))


def _of_tables(results: Path) -> Iterator[Run]:
    cells: dict[str, list[Line]] = {}
    for path in sorted(results.glob("tables/*.csv")):
        for line in read_csv(path):
            cells.setdefault(line.get("run", ""), []).append(line)
    for id, record in records_beside(results / "-.jsonl").items():  # no table comes first
        yield _run(record, cells.get(id, []))


def _run(record: Mapping[str, Any], cells: Sequence[Line]) -> Run:
    """Builds the row of a record from it and from the cells that show it."""
    config, seeds = record["config"], record["seeds"]
    plain = [key for own in seeds.values() for key, value in own.items() if _is_number(value)]
    metrics = dict.fromkeys([*(line["metric"] for line in cells), *plain])
    numbers = {metric: _by_seed(seeds, metric, record["id"]) for metric in metrics}
    first = next(iter(metrics), "")
    values = numbers.pop(first, {})
    words = _words(cells)
    backbone = config["backbone"]
    depth = option(backbone, "depth")
    return Run(
        id=record["id"],
        data=_data_name(config),
        network=_network_name(backbone),
        depth=int(depth) if depth else None,
        method=_method(config),
        settings=" ".join(w for w in words if w.split("=")[0] not in SHOWN_APART),
        metric=first,
        n=len(values),
        **_spread(values),
        values={seed: _rounded(value) for seed, value in values.items()},
        more={metric: (*_spread(of).values(),) for metric, of in numbers.items()},
        command=_command(words, [*seeds]),
        tables=tuple(dict.fromkeys(line["table"] for line in cells)),
        experiment=cells[0]["experiment"] if cells else "",
        where=_environment(record),
    )


def _words(cells: Sequence[Line]) -> list[str]:
    """Returns the overrides of a run: of those of a key, the last one counts."""
    if not cells:
        return []
    words = [f"experiment={cells[0]['experiment']}", *cells[0]["overrides"].split(" ")]
    return [*{word.split("=", 1)[0]: word for word in words if word}.values()]


def _command(words: Sequence[str], seeds: Sequence[str]) -> str:
    own = [word for word in words if not word.startswith("seeds=")]
    return shlex.join(["python", "train.py", *own, f"seeds=[{','.join(seeds)}]"])


def _of_studies(results: Path) -> Iterator[Run]:
    """Yields a row for each cell of tables with candidates, such as cures: the one chosen."""
    tables: dict[str, dict[tuple[str, ...], Cell]] = {}
    for cell in load(results / "expected", chosen=True):
        place = (cell.block, cell.reading, cell.column[2:], cell.key)
        tables.setdefault(cell.about.of or cell.about.name, {})[place] = cell
    for name, cells in tables.items():
        path = results / f"{name}.csv"
        yield from _of_study(cells, read_csv(path) if path.exists() else [])


def _of_study(cells: Mapping[tuple[str, ...], Cell], lines: Sequence[Line]) -> Iterator[Run]:
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        place = (line["graph"], line["network"], line["layers"], line["method"])
        found.setdefault((*place, line["candidate"]), []).append(line)
    for (*place, candidate), own in found.items():
        graph, network, layers, method = place
        values = {line["seed"]: float(line["test_accuracy"]) for line in own}
        validated = {line["seed"]: float(line["val_accuracy"]) for line in own}
        cell = cells[tuple(place)]
        if values.keys() <= {*map(str, cell.about.tuning_seeds)}:
            continue  # it was only tried
        words = [*cell.words, *candidate.split()]
        networks = [word.partition("=")[2] for word in words if word.startswith("backbone=")]
        if networks:  # the row is a network, not a method in one
            network, method = class_name({"_part_": f"backbone/{networks[-1]}"}), "none"
        yield Run(
            id=own[0]["run"],
            data=graph.lower().replace("-", "_"),  # as in configs/data
            network=network,
            depth=int(layers),
            method=method,
            settings=candidate,
            metric=cell.metric,
            n=len(values),
            **_spread(values),
            values=values,
            more={cell.metric.replace("test", "val"): (*_spread(validated).values(),)},
            command=_command(words, [*values]),
            tables=(cell.about.name,),
            experiment=cell.experiment,
        )


def _data_name(config: Mapping[str, Any]) -> str:
    data = config["data"]
    name = data.get("name") or short_name(data)
    if name == "${.task}":
        name = option(data, "task")
    return f"{name}_filtered" if data.get("filtered") else name


def _network_name(backbone: Mapping[str, Any]) -> str:
    """Returns timm's name of a transformer, torch-geometric's of a convolution, or our class's."""
    name = backbone.get("name") or option(backbone, "conv") or class_name(backbone)
    return name.split(".")[0]


def _method(config: Mapping[str, Any]) -> str:
    """Returns ``LayerNorm+residual``: the aggregators, and what the backbone does besides."""
    backbone = config["backbone"]
    skip = option(backbone, "skip")
    beside = {
        "residual": option(backbone, "residual") or skip == "residual",
        "initial_residual": skip == "initial",
        "jumping": short_name(backbone) == "pyg" and option(backbone, "jumping") != "none",
        "DropEdge": option(backbone, "drop_edge"),
    }
    parts = [NAMES.get(name := class_name(config[key]), name) for key in ("aggregator", "then")]
    parts += [name for name, used in beside.items() if used]
    return "+".join(filter(None, parts)) or "none"


def _environment(record: Mapping[str, Any]) -> str:
    env = record["env"]
    known = [("torch", env.get("torch")), ("on", env.get("device")), ("commit", env.get("git"))]
    words = [f"{name} {value}" for name, value in known if value]
    return ", ".join([*words, f"{record['seconds']:.0f} s"])


def _by_seed(seeds: Mapping[str, Any], metric: str, id: str) -> dict[str, float]:
    """Returns a metric of the seeds that have it."""
    top = metric.split(".")[0]
    return {s: look_up(own, metric, f"run {id}") for s, own in seeds.items() if top in own}


def _spread(values: Mapping[str, float]) -> dict[str, float | None]:
    known = [*values.values()]
    mean = statistics.fmean(known) if known else math.nan
    several = len(known) > 1 and math.isfinite(mean)
    return {
        "mean": _rounded(mean),
        "std": _rounded(statistics.stdev(known)) if several else None,
    }


def _rounded(value: float) -> float | None:
    """Rounds for the page; None is what JSON has for a number that is not finite."""
    return round(value, DIGITS) if math.isfinite(value) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
