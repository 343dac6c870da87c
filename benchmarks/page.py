"""Prints the goals, and writes the tables bench/NAME.md; with --publish below results/.

python benchmarks/page.py --publish

Nothing is measured; the rows are those of results/bench.json.
"""

from record import goals, load, parser_of, show

from oversmoothing.lab.launch.script import run_script


def main() -> None:
    target = parser_of(__doc__).parse_args().target
    every = load()
    print(goals(every), *show(target, every), sep="\n")


if __name__ == "__main__":
    run_script(main)
