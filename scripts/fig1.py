"""Runs the panels of Figure 1 that have no result, draws them, and checks the paper's claim.

python scripts/fig1.py --jobs 2
python scripts/fig1.py --folder small -- backbone.depth=200 task.gammas=-1.5:1.5:0.5
"""

import argparse
import sys
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.launch import command as check
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.script import run_script, split_words
from oversmoothing.papers.panels import panels_of
from oversmoothing.papers.rank_claim import claim_table, write_claim
from oversmoothing.papers.rank_figures import draw_figures
from oversmoothing.store.identity import run_id

RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--folder", type=Path, help="for the figures of another grid")
    words, overrides = split_words(sys.argv[1:])
    options = parser.parse_args(words)
    configs = check.configs(["experiment=rank_fig1", *overrides])
    plain = {run_id(config) for config in check.configs(["experiment=rank_fig1"])}
    if options.folder is None and plain != {run_id(config) for config in configs}:
        raise InputError("--folder: these overrides make another figure than the paper's; name one")
    folder = options.folder or RESULTS / "fig1"
    failures = run_all(configs, options.jobs)
    cells = panels_of(configs)
    folder.mkdir(parents=True, exist_ok=True)
    paths = draw_figures(cells, folder) + write_claim(cells, folder)
    print(claim_table(cells), *paths, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    run_script(main)
