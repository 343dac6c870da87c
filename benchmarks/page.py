"""Writes the tables of docs/guides/speed.md from results/bench.json, without measuring.

python benchmarks/page.py --publish
"""

from record import load, parser_of, show

from oversmoothing.launch.script import run_script


def main() -> None:
    target = parser_of(__doc__).parse_args().target
    print(*show(target, load(), load()), sep="\n")


if __name__ == "__main__":
    run_script(main)
