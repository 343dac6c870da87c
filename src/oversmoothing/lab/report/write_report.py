"""Writes two self-contained pages of everything under results/.

    oversmoothing report

The first has tables, figures and claims; the second, ``runs.html`` beside it, has every recorded
run.
"""

import itertools
from dataclasses import replace
from pathlib import Path

from oversmoothing.lab.launch.script import OUTPUTS, Parser
from oversmoothing.lab.report.claims import read_claims
from oversmoothing.lab.report.page import Section, in_short, papers, write_page
from oversmoothing.lab.report.results import collect
from oversmoothing.lab.report.runs import write_runs
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.report.verdict import Entry, judge
from oversmoothing.lab.store.files import require_writable
from oversmoothing.lab.store.files import results as results_folder

ABOUT = (
    "What papers on oversmoothing print, and what this repository measured with its own code. "
    "With depth, the tokens of a transformer or the nodes of a graph network can become alike: "
    "this is oversmoothing. The first bar of a paper counts its published numbers, the second its "
    "claims in words. A number agrees if it is within the tolerance of its table, or within twice "
    "the standard error of the difference; `docs/guides/reproduce.md` has all rules. mIoU: the "
    "overlap of predicted and true areas over their union, averaged over classes."
)
PAGE = OUTPUTS / "report.html"
ELSEWHERE = ["paths.outputs=."]  # no runs are there: only recorded ones are shown
OTHERS = (  # command of make, title, text, and files below results/
    ("cures", "Which method at which depth",
     "All methods under one protocol, with settings chosen on validation. The table is of GCNs on "
     "homophilous graphs: mean difference to none, and how many graphs are significantly better ↑ "
     "or worse ↓; docs/guides/cures.md has the advice, results/tables/cures.md every cell.",
     "tables/cures.md figures/cures.png"),
    ("fig1", "Figure 1: rank of random transformers",
     "The paper's claim, checked cell by cell: with depth the rank falls to 1 for every γ > −1 "
     "and for no γ ≤ −1.",
     "fig1/fig1_claim.md fig1/fig1_rank.png fig1/fig1_effective_rank.png "
     "fig1_fan_in/fig1.png"),
    ("propositions", "Propositions 1 and 2",
     "Attention alone, W_V = I: the same weights in all layers (1), the mean over weights (2).",
     "propositions/propositions.md"),
    ("fig2", "Figure 2: CAMs, labels and masks",
     "Training on a subset of VOC; the first images that each bring a new class. Centering is no "
     "better here: some of its masks cover grass or sky.",
     "figures/fig2_overnight.png figures/fig2_overnight_tokens.png figures/wsss_tokens.png"),
    ("layers", "ContraNorm, Figure 2: attention maps, tokens and singular values",
     "By layer, in the pretrained DeiT-Ti and in a small BERT trained on SST-2.",
     "figures/contranorm_layers.png"),
    ("hem_fig3", "HEMNet, Figure 3: ELBO and gradients",
     "At the start of training, T = 12.", "figures/hem_fig3.png"),
    ("hem_fig4", "HEMNet, Figure 4: attention maps and reconstructions",
     "VOC subset. γ is the responsibility of a basis for each pixel, not centering's γ: with every "
     "iteration it becomes sharper, and the reconstruction X̃ nearer to the features X.",
     "figures/hem_fig4.png"),
    ("elbo", "HEMNet: which steps lower the ELBO",
     "Counts over random starts, by E-step.", "tables/elbo.md"),
    ("cost", "HEMNet, Table 3: cost",
     "Measured; what the printed columns count: results/tables/cost.md.", "tables/cost.md"),
)  # fmt: skip


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument(
        "--runs", type=Path, help="write only the page of all runs, to this file of the site"
    )
    options, results = parser.parse_args(), results_folder()
    require_writable((options.runs or PAGE).parent)
    if options.runs:
        write_runs(options.runs, results, ("index.html", "Documentation"))
        return 0
    print("reads all results, tables and claims; takes about a minute", flush=True)
    cells = load(results / "expected")
    names = dict.fromkeys(cell.table for cell in cells)
    judged, tables = {}, []
    for name in names:
        planned = collect(select(cells, name), ELSEWHERE, results / f"{name}.jsonl")
        judged[name] = judge([p.pair for p in planned])
        tables.append(_table(results, name, judged[name]))
    sections = [_section(results, *of) for of in OTHERS]
    claims = read_claims(results)
    counted = papers((entry for entries in judged.values() for entry in entries), claims)
    overview = [replace(paper, in_short=in_short(results, paper.name)) for paper in counted]
    sections = [_claims(claims)] * bool(claims) + sections + tables
    write_page(PAGE, "Oversmoothing: published and measured", sections, overview, ABOUT)
    runs = PAGE.with_name("runs.html")
    write_runs(runs, results, (PAGE.name, "Tables, figures and claims"))
    print(PAGE.resolve().as_uri(), runs.resolve().as_uri(), sep="\n")
    return 0


def _claims(claims: list[dict[str, str]]) -> Section:
    text = "Each claim with a verdict computed from what was measured."
    return Section("What the papers claim", text, "oversmoothing figure claims", claims=claims)


def _section(results: Path, name: str, title: str, text: str, files: str) -> Section:
    paths = [results / file for file in files.split()]
    rows = [row for path in paths if path.suffix == ".md" for row in _rows(path)]
    figures = [path for path in paths if path.suffix == ".png"]
    return Section(title, text, f"oversmoothing figure {name}", rows=rows, figures=figures)


def _table(results: Path, name: str, entries: list[Entry]) -> Section:
    about = entries[0].cell.about
    title = about.title if about.ours else f"{about.source}: {about.title}"
    text = "; ".join([about.source] * about.ours + [f"unit: {about.unit}"] * bool(about.unit))
    endings = ("", "_curves", "_training", "_thresholds")
    files = [results / f"figures/{name}{ending}.png" for ending in endings]
    figures = [path for path in files if path.exists()]
    return Section(title, text, f"oversmoothing table {name}", entries=entries, figures=figures)


def _rows(path: Path) -> list[list[str]]:
    """Returns the cells of a file's first Markdown table, without the line below its head."""
    lines = path.read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[first:])
    cells = [line.strip("|\n ").split(" | ") for line in table]
    return [cells[0], *cells[2:]]
