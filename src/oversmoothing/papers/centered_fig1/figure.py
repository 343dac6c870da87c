"""Figure 1: runs the panels that have no result, draws all, and checks the paper's claim.

python scripts/figure.py fig1 --jobs 2
python scripts/figure.py fig1 --folder small -- backbone.depth=200 task.gammas=-1.5:1.5:0.5
"""

from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.command import configs
from oversmoothing.launch.script import split_words
from oversmoothing.papers import RESULTS, figure_parser, other_runs
from oversmoothing.papers.centered_fig1.claim import claim_table, write_claim
from oversmoothing.papers.centered_fig1.heat_maps import draw_figures
from oversmoothing.papers.centered_fig1.panels import panels_of

EXPERIMENT = "experiment=rank_fig1"


def main(argv: list[str]) -> int:
    """Returns 1 if some run failed; its panel is left blank."""
    parser = figure_parser(__name__, __doc__)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes side by side")
    parser.add_argument("--folder", type=Path, help="where the figure of another grid goes")
    words, overrides = split_words(argv)
    options = parser.parse_args(words)
    chosen = configs([EXPERIMENT, *overrides])
    if options.folder is None and other_runs([EXPERIMENT], overrides):
        raise InputError(
            "--folder: these overrides make another figure than the paper's; name a folder for it"
        )
    folder = options.folder or RESULTS / "fig1"
    failures = run_all(chosen, options.jobs)
    panels = panels_of(chosen)
    paths = draw_figures(panels, folder, options.pdf) + write_claim(panels, folder)
    print(claim_table(panels), *paths, sep="\n")
    return 1 if failures else 0
