"""What a paper's page says in short is repeated by the README and by the report."""

from dataclasses import replace
from pathlib import Path

from guide import ROOT
from made_up import entries

from oversmoothing.lab.report.in_short import PAGES, in_short
from oversmoothing.lab.report.page import page, papers

RESULTS = ROOT / "results"


def test_it_is_the_section_without_links(tmp_path: Path) -> None:
    (tmp_path / "docs/papers").mkdir(parents=True)
    text = "# HEMNet\n\n## In short\n\nOne 1.5\n[two](a.md).\n"
    text += "\nThe\nreasons.\n"
    (tmp_path / "docs/papers/hemnet.md").write_text(f"{text}\n## Next\n\nthree\n", "utf-8")
    assert in_short(tmp_path / "results", "HEMNet") == ["One 1.5 two.", "The reasons."]
    assert in_short(tmp_path / "results", "ContraNorm") == []


def test_every_paper_has_a_verdict_of_one_sentence_and_reasons() -> None:
    for paper in PAGES:
        verdict, *reasons = in_short(RESULTS, paper)
        assert verdict.count(". ") == 0 and len(verdict) < 300
        assert len(reasons[0]) > len(verdict)


def test_the_readme_shows_all_verdicts() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for paper, name in PAGES.items():
        first = in_short(RESULTS, paper)[0]
        assert f"- **[{paper}](docs/papers/{name}.md)**: {first}\n" in readme


def test_the_report_shows_the_verdict_above_the_bar_of_its_paper() -> None:
    paper = replace(papers(entries())[0], in_short=["It holds for 1 < 2.", "Since it does."])
    text = page("Results", [], [paper])
    assert text.index("It holds for 1 &lt; 2.") < text.index('<div class="bar"')
    assert text.index('<div class="bar"') < text.index("Since it does.")
