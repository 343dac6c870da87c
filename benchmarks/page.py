"""Writes the tables of docs/guides/speed.md from results/bench.json, without measuring.

python benchmarks/page.py
"""

from record import load, show

from oversmoothing.launch.script import run_script


def main() -> None:
    for name, rows in load().items():
        show(name, rows)


if __name__ == "__main__":
    run_script(main)
