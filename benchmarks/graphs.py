"""Compares seconds per epoch of a Table 5 cell with the approach of ContraNorm's code.

    python benchmarks/graphs.py
    python benchmarks/graphs.py --depths 16 --official ../ContraNorm/gnn
    python benchmarks/graphs.py --device cuda

An epoch is one optimisation step of all five seeds. `ours` is what train.py runs: seeds batched,
sparse features, no N×N matrix. `reference` trains one seed after the other with dense features and
ContraNorm's explicit N×N softmax. `official` are the authors' own layers.
The official code also evaluates after each epoch; none of these numbers counts that.

On a busy machine set OMP_NUM_THREADS=1, since threads that wait for a core distort the ratios, and
add --cpu-seconds.
Uses Cora if DATA_ROOT (default: data) has it, else the embedded graph.
|Δ logits| is the largest difference from the reference in float64, with the same weights and
without dropout. Exit code 1 if it exceeds both 1e-5 and four times the difference of the reference
in float32.
"""

import argparse
from pathlib import Path
from time import perf_counter, process_time

import floors
import record
import torch
from cells import METHODS, Bench, Cell
from measure import interleaved, peak_bytes, peak_megabytes
from reference_gcn import copy_weights

from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

Form = Cell | floors.Products
ATOL = 1e-5
PEERS = {"reference": "the plain form, seed by seed", "official": "ContraNorm's code"}
GOALS = {2: 20.0, 8: 10.0, 32: 8.0}  # times as fast as the authors' code


def main() -> int:
    options = arguments()
    place = device(options.device)
    bench = Bench(options.official, place)
    if options.peak_of:
        form, method, depth = options.peak_of
        print(peak_bytes(bench.make(form, method, int(depth)).epoch, place))
        return 0
    agree = True
    for depth in options.depths:
        for method in options.methods:
            rows, same = measured(bench, method, depth, options)
            record.save(rows)
            agree &= same
    print("", "the forms agree" if agree else "error: the forms do not agree", sep="\n")
    return int(not agree)


def measured(
    bench: Bench, method: str, depth: int, options: argparse.Namespace
) -> tuple[list[record.Row], bool]:
    """Returns the rows of a cell, and whether all implementations give the same logits."""
    cells = {form: bench.make(form, method, depth) for form in bench.forms(method)}
    gap, rounding = disagreement(cells)
    seconds = time(cells | {"products": floors.Products(cells["ours"].net)}, options)
    clock = "CPU s" if options.cpu_seconds else "s"
    work, unit = (
        f"GCN, {method}, L = {depth}",
        f"{clock} per epoch of 5 seeds on {bench.graph.name}",
    )
    rows = [
        record.row(
            work, unit, seconds["ours"], peer=PEERS[form], theirs=seconds[form],
            goal=goal(form, method, depth), note=note(seconds, form, gap),
        )
        for form in cells.keys() - {"ours"}
    ]  # fmt: skip
    if options.memory and method == "contranorm":
        rows += memory(bench, depth)
    return rows, gap <= max(ATOL, 4 * rounding)


def note(seconds: dict[str, list[float]], form: str, gap: float) -> str:
    """Describes the agreement, and the ratio with the matrix products alone."""
    floor = floors.note(seconds["ours"], seconds["products"], seconds[form])
    return f"logits differ by {gap:.0e} at equal weights; {floor}"


def goal(form: str, method: str, depth: int) -> float | None:
    """Returns the required speedup over the authors' code, if there is one."""
    if form != "official":
        return None
    return 5.0 if method == "contranorm" else GOALS.get(depth)


def disagreement(cells: dict[str, Cell]) -> tuple[float, float]:
    """Compares the logits of all implementations, with our weights and without dropout.

    Returns:
        The largest difference of any implementation's logits from the reference in float64, and
        that of the reference in float32.
    """
    with torch.no_grad():
        for form in cells.keys() - {"ours"}:
            copy_weights(cells["ours"].net, cells[form].nets)
        logits = {form: cell.logits() for form, cell in cells.items()}
        exact = cells["reference"].exact_logits()
    gaps = {form: (values - exact).abs().max().item() for form, values in logits.items()}
    return max(gaps.values()), gaps["reference"]


def time(cells: dict[str, Form], options: argparse.Namespace) -> dict[str, list[float]]:
    """Measures seconds per epoch of every implementation, one value per round."""

    def epochs(cell: Form) -> None:
        for _ in range(options.epochs):
            cell.epoch()

    steps = {form: lambda cell=cell: epochs(cell) for form, cell in cells.items()}
    clock = process_time if options.cpu_seconds else perf_counter
    seconds = interleaved(steps, options.rounds, clock)
    return {form: [value / options.epochs for value in values] for form, values in seconds.items()}


def memory(bench: Bench, depth: int) -> list[record.Row]:
    """Measures the MB of an epoch of ContraNorm, the only method with an N×N matrix."""
    forms = bench.forms("contranorm")
    peaks = {form: peak_megabytes("--peak-of", form, "contranorm", str(depth)) for form in forms}
    return [
        record.row(
            f"GCN, contranorm, L = {depth}", f"peak MB per epoch of 5 seeds on {bench.graph.name}",
            [peaks["ours"]], peer=PEERS[form], theirs=[peaks[form]],
        )
        for form in forms[1:]
    ]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--epochs", type=int, default=4, help="per round")
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--rounds", type=int, default=5, help="the forms take turns in each")
    parser.add_argument("--cpu-seconds", action="store_true", help="not those of the clock")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--memory", action="store_true", help="of ContraNorm, too")
    parser.add_argument("--official", type=Path, help="gnn folder of a ContraNorm checkout")
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)  # form, method, depth
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
