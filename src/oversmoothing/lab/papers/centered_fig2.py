"""Figure 2 of Centered Self-Attention Layers: CAMs and masks of two runs.

oversmoothing figure fig2
oversmoothing figure fig2 --with outputs/wsss-… --without outputs/wsss-… --stem my/fig
oversmoothing figure fig2 --known         # masks among the classes of the image's label

It shows the first images of the validation list with a class that no image before them has. A
second figure shows the similarity of tokens by block in the same runs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.tokens import Results, draw_tokens, token_rows
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.predict import require_same_classes
from oversmoothing.lab.launch.script import SEED
from oversmoothing.lab.launch.trained import TrainedRun
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.results import merged_seeds, records_beside
from oversmoothing.lab.store.results import read_result
from oversmoothing.lab.tasks.wsss.pictures import distinct_classes, draw_pair, look_at

CENTERED = ["experiment=wsss_voc_subset", "aggregator.gamma=-1"]
WITHOUT = ["experiment=wsss_voc_subset", "aggregator=none"]
IMAGES = 4


def main(argv: list[str]) -> int:
    """Writes ``fig2_voc_subset.png``, ``wsss_tokens.png`` and ``wsss_tokens.csv``.

    With another stem: ``<stem>.png``, ``<stem>_tokens.png`` and ``<stem>_tokens.csv``.
    """
    parser = figure_parser(__doc__)
    parser.add_argument("--with", dest="centered", help="run; default: the subset's, γ = −1")
    parser.add_argument("--without", help="run; default: the subset's without centering")
    parser.add_argument("--seed", type=SEED, help="default: the first trained; 0 without runs")
    parser.add_argument("--known", action="store_true", help="masks among the labelled classes")
    parser.add_argument("--stem", type=Path, help="path of the figure, without .png")
    options = parser.parse_args(argv)
    runs = [
        trained.load(run or trained.of_command(words, options.seed or 0), options.seed)
        for run, words in ((options.without, WITHOUT), (options.centered, CENTERED))
    ]
    ids = distinct_classes(runs[1].data, IMAGES)
    stem = options.stem or options.target / "figures/fig2_voc_subset"
    paths = save(figure2(*runs, ids, options.known), stem, options.pdf)
    same = runs[0].title == runs[1].title
    tokens = {run.folder.name if same else run.title: _results(run) for run in runs}
    named = f"{stem.name}_tokens" if options.stem else "wsss_tokens"
    paths += write_tokens(tokens, stem.with_name(named), options.pdf)
    print(*paths, f"images: {' '.join(ids)}", sep="\n")
    return 0


def figure2(
    without: TrainedRun, centered: TrainedRun, ids: Sequence[str], known: bool = False
) -> Figure:
    """Draws truth, the CAMs of both runs and the masks of both runs for each image.

    A CAM shows the maximum over the classes in the image's label.

    Args:
        without: the baseline.
        centered: a run on the same data set.
        ids: of its images.
        known: limit masks to the classes in the image's label.

    Raises:
        InputError: the runs have different classes, or an image is damaged.
    """
    require_same_classes(centered, without)
    data = centered.data
    pair = []
    for run in (without, centered):
        viewer = run.task.viewer(run.network, known=known)
        pair.append((run.title, [look_at(viewer, data, id) for id in ids]))
    return draw_pair(pair, centered.label_names)


def write_tokens(results: Results, stem: Path, pdf: bool = False) -> list[Path]:
    """Draws token similarity by block, writes its data, and returns the paths.

    Args:
        results: label -> results of its seeds, as in ``result.json``.
        stem: path of the figure, without suffix.
        pdf: whether to save a PDF as well.

    Raises:
        InputError: a result has no token similarity, or a file cannot be written.
    """
    rows = token_rows(results)
    paths = save(draw_tokens(rows), stem, pdf)
    data = (row.values() for row in rows)
    return [*paths, write_csv(stem.with_name(f"{stem.name}.csv"), rows[0], data)]


def _results(run: TrainedRun) -> list[dict[str, Any]]:
    """Returns the results of all seeds, from the run's folder or from the records.

    Raises:
        InputError: the run is not finished.
    """
    result = read_result(run.folder)
    if result is None:
        raise InputError(f"{run.folder}: no result yet; run its command again")
    recorded = records_beside(RESULTS / "wsss_gamma.jsonl").get(result["id"], result)
    return list(merged_seeds(result, recorded)["seeds"].values())
