"""Seconds per epoch of a Table 5 cell, beside the ContraNorm code's way of doing it.

    python benchmarks/graphs.py
    python benchmarks/graphs.py --depths 16 --official ../ContraNorm/gnn

An epoch is one optimisation step of all five seeds. `ours` is what train.py runs: seeds batched,
sparse features, no N×N matrix. `reference` trains one seed after the other with dense features and
ContraNorm's explicit N×N softmax. `official` are the authors' own layers.
The official code also evaluates after each epoch; none of these numbers counts that.

On a busy machine set OMP_NUM_THREADS=1, as threads that wait for a core distort the ratios, and add
--cpu-seconds.
Uses Cora where DATA_ROOT (default: data) has it, else the embedded graph.
|Δ logits| is the largest difference, at the same weights and without dropout, from the reference
in float64. Exit code 1 when it exceeds 1e-5 and is not float32's own: below four times that of the
reference in float32.
"""

import argparse
import statistics
from pathlib import Path
from time import perf_counter, process_time

import torch
from cells import METHODS, SEEDS, Bench, Cell
from measure import in_fresh_process, interleaved, median_ratio, peak_bytes, text
from reference_gcn import copy_weights

from oversmoothing.launch.script import run_script

ATOL = 1e-5
OTHERS = ("reference", "official")
Table = list[list[str]]


def main() -> int:
    options = arguments()
    bench = Bench(options.official)
    if options.peak_of:
        form, method, depth = options.peak_of
        print(peak_bytes(bench.make(form, method, int(depth)).epoch, torch.device("cpu")))
        return 0
    shown = ["ours", *OTHERS] if options.official else ["ours", "reference"]
    print(f"{bench.graph.name}, {len(SEEDS)} seeds, {torch.get_num_threads()} threads\n")
    speed, agree = speed_table(bench, shown, options)
    print(text(speed), "", text(memory_table(bench, shown, options.depths)), sep="\n")
    print("", "the forms agree" if agree else "error: the forms do not agree", sep="\n")
    return int(not agree)


def speed_table(bench: Bench, shown: list[str], options: argparse.Namespace) -> tuple[Table, bool]:
    """Seconds per epoch, and whether all forms give the same logits."""
    head = ["seconds per epoch", "ours"]
    head += [word for form in shown[1:] for word in (form, "× ours")]
    head.append("|Δ logits|")
    rows, agree = [], True
    for depth in options.depths:
        for method in options.methods:
            cells = {form: bench.make(form, method, depth) for form in bench.forms(method)}
            gap, rounding = disagreement(cells)
            agree &= gap <= max(ATOL, 4 * rounding)
            seconds = time(cells, options)
            row = [f"{statistics.median(seconds['ours']):.3f}"]
            for form in shown[1:]:
                row += beside(seconds, form)
            rows.append([f"{method}, {depth} layers", *row, f"{gap:.0e}"])
    return [head, *rows], agree


def disagreement(cells: dict[str, Cell]) -> tuple[float, float]:
    """All forms with our weights, without dropout: how far apart, and how far float32 explains.

    Returns:
        The largest difference of any form's logits from the reference in float64, and that of the
        reference itself in float32.
    """
    with torch.no_grad():
        for form in cells.keys() - {"ours"}:
            copy_weights(cells["ours"].net, cells[form].nets)
        logits = {form: cell.logits() for form, cell in cells.items()}
        exact = cells["reference"].exact_logits()
    gaps = {form: (values - exact).abs().max().item() for form, values in logits.items()}
    return max(gaps.values()), gaps["reference"]


def time(cells: dict[str, Cell], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds per epoch of every form, one value a round."""

    def epochs(cell: Cell) -> None:
        for _ in range(options.epochs):
            cell.epoch()

    steps = {form: lambda cell=cell: epochs(cell) for form, cell in cells.items()}
    clock = process_time if options.cpu_seconds else perf_counter
    seconds = interleaved(steps, options.rounds, clock)
    return {form: [value / options.epochs for value in values] for form, values in seconds.items()}


def beside(seconds: dict[str, list[float]], form: str) -> list[str]:
    """A form's time and its ratio to ours; the authors have no centered aggregation."""
    if form not in seconds:
        return ["", ""]
    ratio = median_ratio(seconds[form], seconds["ours"])
    return [f"{statistics.median(seconds[form]):.3f}", f"{ratio:.1f}"]


def memory_table(bench: Bench, shown: list[str], depths: list[int]) -> Table:
    """MB that an epoch of ContraNorm, the one method with an N×N matrix, needs above its data."""
    rows = [["peak MB", "ours", *(word for form in shown[1:] for word in (form, "× ours"))]]
    for depth in depths:
        peaks = {
            form: in_fresh_process("--peak-of", form, "contranorm", str(depth)) for form in shown
        }
        row = [f"contranorm, {depth} layers", f"{peaks['ours']:.0f}"]
        for form in shown[1:]:
            row += [f"{peaks[form]:.0f}", f"{peaks[form] / peaks['ours']:.1f}"]
        rows.append(row)
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=1, help="per round")
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--rounds", type=int, default=5, help="the forms take turns in each")
    parser.add_argument("--cpu-seconds", action="store_true", help="not those of the clock")
    parser.add_argument("--official", type=Path, help="gnn folder of a ContraNorm checkout")
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)  # form, method, depth
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
