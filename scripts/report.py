"""One self-contained page of everything under results/: python scripts/report.py"""

import argparse
import itertools
from pathlib import Path

from oversmoothing.launch.script import run_script
from oversmoothing.report.collect import collect
from oversmoothing.report.expected import load, select
from oversmoothing.report.grid import judge
from oversmoothing.report.page import Section, write_page

RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("outputs/report.html"))
    page = parser.parse_args().page
    sections = [_figure1(), _propositions(), _figure2(), *_hemnet()]
    cells = load(RESULTS / "expected")
    sections += [_table(cells, name) for name in dict.fromkeys(cell.table for cell in cells)]
    page.parent.mkdir(parents=True, exist_ok=True)
    write_page(page, "Oversmoothing: published and measured", [s for s in sections if s])
    print(page.resolve().as_uri())
    return 0


def _figure1() -> Section | None:
    folder = RESULTS / "fig1"
    if not (folder / "fig1_claim.md").exists():
        return None
    return Section(
        "Figure 1: rank of random transformers",
        "The paper's claim, checked cell by cell: with depth the rank falls to 1 for every γ > −1 "
        "and for no γ ≤ −1.",
        "make fig1",
        rows=_rows(folder / "fig1_claim.md"),
        figures=[folder / "fig1_rank.png", folder / "fig1_effective_rank.png"],
    )


def _propositions() -> Section | None:
    path = RESULTS / "propositions" / "propositions.md"
    if not path.exists():
        return None
    text = (
        "Attention alone, W_V = I: the same weights in all layers (1), the mean over weights (2)."
    )
    return Section("Propositions 1 and 2", text, "make propositions", rows=_rows(path))


def _figure2() -> Section | None:
    names = ("fig2_voc_subset", "wsss_tokens")
    figures = [path for n in names if (path := RESULTS / "figures" / f"{n}.png").exists()]
    if not figures:
        return None
    text = "The subset of VOC; images by a rule: the first that each bring a new class."
    return Section("Figure 2: CAMs, labels and masks", text, "make fig2", figures=figures)


def _hemnet() -> list[Section]:
    """What is measured beside HEMNet's figures and its table of costs."""
    found = []
    for name, title, text in (
        ("hem_fig3", "HEMNet, Figure 3: ELBO and gradients", "At the start of training, T = 12."),
        ("hem_fig4", "HEMNet, Figure 4: attention maps and reconstructions", "VOC subset."),
    ):
        if (path := RESULTS / "figures" / f"{name}.png").exists():
            found.append(Section(title, text, f"make {name}", figures=[path]))
    for name, title, text in (
        ("elbo", "HEMNet: which steps lower the ELBO", "Counts over random starts, by E-step."),
        (
            "cost",
            "HEMNet, Table 3: cost",
            "Measured; what the printed columns count: results/tables/cost.md.",
        ),
    ):
        if (path := RESULTS / "tables" / f"{name}.md").exists():
            found.append(Section(title, text, f"make {name}", rows=_rows(path)))
    return found


def _table(cells: list, name: str) -> Section:
    planned = collect(select(cells, name), [], RESULTS / f"{name}.jsonl")
    entries = judge([(p.cell, p.measured) for p in planned])
    figure = RESULTS / "figures" / f"{name}.png"
    about = entries[0].cell.about
    curves = figure.with_name(f"{name}_curves.png")
    figures = [path for path in (figure, curves) if path.exists()]
    title = about.title if about.ours else f"{about.source}: {about.title}"
    return Section(title, about.source, f"make {name}", entries=entries, figures=figures)


def _rows(path: Path) -> list[list[str]]:
    """The cells of a file's first Markdown table, without the line below its head."""
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[first:])
    cells = [line.strip("|\n ").split(" | ") for line in table]
    return [cells[0], *cells[2:]]


if __name__ == "__main__":
    run_script(main)
