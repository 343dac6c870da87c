"""Figure 2 on the VOC subset, and the similarity of tokens by block in the same two runs.

python scripts/fig2.py
python scripts/fig2.py --with outputs/wsss-… --without outputs/wsss-… --rows 6 --stem my/figure

Unless --images names some, the images are the first of the validation list that each bring a class
which none before them has.
"""

import argparse
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError
from oversmoothing.launch import trained
from oversmoothing.launch.script import run_script
from oversmoothing.launch.trained import Trained
from oversmoothing.papers.token_figures import write_tokens
from oversmoothing.papers.wsss_figures import figure2
from oversmoothing.store.files import writing
from oversmoothing.store.recorder import read_result
from oversmoothing.tasks.wsss.look import distinct_classes
from oversmoothing.tasks.wsss.pictures import save

STEM = Path(__file__).parents[1] / "results/figures/fig2_voc_subset"
CENTERED = ["experiment=wsss_voc_subset", "aggregator.gamma=-1"]
WITHOUT = ["experiment=wsss_voc_subset", "aggregator=none"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--with", dest="centered", help="run; default: the subset's, γ = −1")
    parser.add_argument("--without", help="run; default: the subset's without centering")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", nargs="+", help="ids of the runs' data set")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--stem", type=Path, default=STEM, help="of the files .png and .pdf")
    options = parser.parse_args()
    if options.rows < 1:
        raise InputError(f"--rows: expected 1 or more, got {options.rows}")
    runs = [
        trained.load(run or trained.of_command(words, options.seed), options.seed)
        for run, words in ((options.without, WITHOUT), (options.centered, CENTERED))
    ]
    ids = options.images or distinct_classes(runs[1].data, options.rows)
    with writing(options.stem):
        options.stem.parent.mkdir(parents=True, exist_ok=True)
    print(*save(figure2(*runs, ids), options.stem), sep="\n")
    print("images:", *ids)
    same = runs[0].title == runs[1].title
    tokens = {run.folder.name if same else run.title: _results(run) for run in runs}
    print(*write_tokens(tokens, options.stem.with_name("wsss_tokens")), sep="\n")
    return 0


def _results(run: Trained) -> list[dict[str, Any]]:
    """Of every seed. InputError: its run is not over."""
    result = read_result(run.folder)
    if result is None:
        raise InputError(f"{run.folder}: no result yet; run its command again")
    return list(result["seeds"].values())


if __name__ == "__main__":
    run_script(main)
