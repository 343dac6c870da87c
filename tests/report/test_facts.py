"""Numbers in written pages are those of the results."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from guide import ROOT

from oversmoothing.errors import InputError
from oversmoothing.lab.report.facts import FACT, current, update, value

RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", RESULTS / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = r"<!-- (\S+?)( [^>]*)?:start -->.*?<!-- \1:end -->"
CONSTANT = r"[γηshτ] [=<] −?[\d.]+|[Dd]ropout [\d.]+|(arXiv:|Python |torch )[\d.]+"
NO_TEXT = r"<!--\?.*?-->|^```.*?^```|\$\$.*?\$\$|`[^`]*`|\]\([^)]*\)"
HIDDEN = re.compile(f"{GENERATED}|{NO_TEXT}|{CONSTANT}", re.M | re.S)
NUMBER = re.compile(r"\d\.\d|\d\s?%|\d of (the )?\d|n = \d")
REVIEWED = yaml.safe_load((Path(__file__).parent / "reviewed_numbers.yaml").read_text("utf-8"))


def numbers(text: str) -> list[str]:
    """The sentences and rows of tables that hold a decimal number, a percentage or a count."""
    written = re.sub(r"[ ]*\n(?![|\n#-]|\d\. )[ ]*", " ", HIDDEN.sub("", FACT.sub("", text)))
    sentences = re.split(r"\n|(?<=[.:;])(?<!\d\.) ", written)
    return [sentence.strip(" -") for sentence in sentences if NUMBER.search(sentence)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_what_the_results_say(page: Path) -> None:
    """After new results: `make claims RECORDED=1`."""
    text = page.read_text("utf-8")
    assert current(text, RESULTS, page) == text
    assert not re.search(r"^ *(- |\d\. )?<!--=", text, re.M), (
        "a line that begins so is not Markdown"
    )
    reviewed = set(REVIEWED.get(str(page.relative_to(ROOT)), []))
    written = set(numbers(text))
    assert not written - reviewed, "give each number a marker (report/facts.py), or review it"
    assert not reviewed - written, "reviewed, but no longer on the page"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page next to results with one table and one claim."""
    for name in ("tables/table5.csv", "claims.json"):
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(RESULTS / name, tmp_path / "results" / name)
    (tmp_path / "docs/papers").mkdir(parents=True)
    return tmp_path / "docs/papers/page.md"


def test_new_results_change_the_numbers_and_nothing_else(page: Path) -> None:
    results = page.parents[2] / "results"
    text = "a <!--=table5/Cora/vanilla/L=2:mean-->0<!--/--> b <!--=table5:missing--><!--/-->\n"
    text += "<!-- claims hem_order:start -->\nold\n<!-- claims:end -->\nend\n"
    page.write_text(text, "utf-8")
    assert update(results) == [page]
    assert update(results) == []
    before = page.read_text("utf-8")
    assert "(claims.md#hem_order)" in before and before.endswith("<!-- claims:end -->\nend\n")
    lines = (results / "tables/table5.csv").read_text("utf-8").splitlines()
    mean, missing = lines[1].split(",")[7], int(value(results, "table5:missing"))
    lines[1] = lines[1].replace(mean, "").replace(",within,", ",missing,")
    (results / "tables/table5.csv").write_text("\n".join(lines), "utf-8")
    assert f"{float(mean):.1f}<" in before and f">{missing}<" in before
    update(results)
    after = before.replace(f"{float(mean):.1f}<", "not measured<")
    assert page.read_text("utf-8") == after.replace(f">{missing}<", f">{missing + 1}<")


def test_differences_are_from_the_corrected_value(tmp_path: Path) -> None:
    line = {"block": "Cora", "key": "vanilla", "column": "L=2", "reading": "", "mean": "20.13",
            "std": "", "published": "23.37", "corrected": "22.37",
            "difference": "-2.24"}  # fmt: skip
    rows = [line.keys(), line.values(), (line | {"key": "ours", "difference": "3.14"}).values()]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/one.csv").write_text("\n".join(map(",".join, rows)), "utf-8")
    assert value(tmp_path, "one/Cora/vanilla/L=2:published") == "22.37"
    assert value(tmp_path, "one/Cora/vanilla/L=2:difference") == "-2.2"
    assert value(tmp_path, "one/Cora/ours/L=2:difference") == "+3.1"


@pytest.mark.parametrize(
    "key", ["no/Cora", "table5/Nora/*", "claims/no", "claims.csv:a", "table5/*:x"]
)
def test_a_key_that_names_no_result_is_met_with_one_line(page: Path, key: str) -> None:
    page.write_text(f"<!--={key}-->1<!--/-->", "utf-8")
    with pytest.raises(InputError, match=re.escape(key)) as error:
        update(page.parents[2] / "results")
    assert "\n" not in str(error.value)


def test_a_number_in_a_sentence_is_found_and_a_constant_is_not() -> None:
    text = "It is 3.1 points. At γ = −1.5 no. So\n71 % of\n`0.5`.\n| a | 7 of 9 |\n"
    text += "<!--=a-->1.2<!--/-->"
    assert numbers(text) == ["It is 3.1 points.", "So 71 % of .", "| a | 7 of 9 |"]
