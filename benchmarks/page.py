"""Writes the tables of docs/guides/speed.md from results/bench.json, without measuring.

python benchmarks/page.py
"""

from record import RESULTS, goals, load, show

from oversmoothing.launch.script import run_script
from oversmoothing.report.markers import show_in_pages


def main() -> None:
    for name, rows in load().items():
        show(name, rows)
    show_in_pages(RESULTS, "bench-goals", goals(load()))


if __name__ == "__main__":
    run_script(main)
