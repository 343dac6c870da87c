"""Pages say what the results say: their numbers, comparisons and tables."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from guide import ROOT

from oversmoothing.errors import InputError
from oversmoothing.lab.report.numbers import (
    NUMBER,
    TABLE,
    facts,
    holds,
    main,
    problems,
    update,
    value,
)

RESULTS = ROOT / "results"
FACTS = facts(RESULTS)
PAGES = ["README.md", "results/README.md", *FACTS]
PAGES = [*PAGES, *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
CONSTANT = r"[γηshτ] [=<] −?[\d.]+|[Dd]ropout [\d.]+|(arXiv:|Python |torch )[\d.]+"
NO_TEXT = r"^```.*?^```|\$\$.*?\$\$|`[^`]*`|\]\([^)]*\)"
HIDDEN = re.compile(f"{NO_TEXT}|{CONSTANT}", re.M | re.S)
WRITTEN = re.compile(r"\d+\.\d+|\d+\s?%|\d+ of (the )?\d+|n = \d+")


def pattern(quote: str) -> str:
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in quote.split("{}")]
    return NUMBER.join(parts)


def without_source(text: str, quotes: dict[str, str]) -> list[str]:
    """The decimal numbers, percentages and counts of a page that no quote and no copy has."""
    spans = []
    for quote, source in quotes.items():
        found = re.search(pattern(quote), text)
        spans.append(found.span())
        if source.startswith(("claims ", "tables/")):
            spans.append(TABLE.search(text, found.end()).span())
    for first, last in spans:
        text = text[:first] + re.sub(r"\d", "x", text[first:last]) + text[last:]
    text = HIDDEN.sub(" ", text)
    return [text[: found.end()][-60:] for found in WRITTEN.finditer(text)]


@pytest.mark.parametrize("page", dict.fromkeys(PAGES))
def test_a_page_says_what_the_results_say(page: str) -> None:
    """After new results: `make numbers`. The form of docs/facts.yaml: report/numbers.py."""
    quotes = FACTS.get(page, {})
    assert not quotes or not [*problems(RESULTS, page)]
    assert not without_source((ROOT / page).read_text("utf-8"), quotes)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page next to results with a table and claims."""
    for name in ("tables/table5.csv", "tables/table5.md", "claims.json"):
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(RESULTS / name, tmp_path / "results" / name)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs/page.md"


def written(page: Path, text: str, **quotes: str) -> Path:
    """Writes a page and its quotes, and returns the results beside it."""
    page.write_text(text, "utf-8")
    listed = yaml.safe_dump({"docs/page.md": quotes}, sort_keys=False)
    (page.parent / "facts.yaml").write_text(listed, "utf-8")
    return page.parent.parent / "results"


def test_new_results_change_numbers_and_tables_and_nothing_else(page: Path) -> None:
    text = "At 5 it\nis {}, of\n{} cells.\n\n## All\n\n{}\nend | 3.1\n"
    quotes = {"it is {}, of {} cells": "table5/Cora/vanilla/L=2:mean; table5:missing"}
    old = text.format("0", "not measured", "| a |\n|---|\n| b |\n")
    results = written(page, old, **quotes, **{"## All": "claims hem_order", "At 5": "by hand"})
    assert [*problems(results, "docs/page.md")][0].startswith("docs/page.md: 'it is {}, of")
    assert update(results) == [page] and update(results) == []
    first, _, after = page.read_text("utf-8").partition("## All\n")
    mean, missing = (value(results, key) for key in quotes.popitem()[1].split("; "))
    assert first == text.format(mean, missing, "").partition("## All\n")[0]
    assert "(../results/claims.md#hem_order)" in after and after.endswith("|\n\nend | 3.1\n")
    assert not [*problems(results, "docs/page.md")]
    table = results / "tables/table5.csv"
    lines = table.read_text("utf-8").splitlines()
    lines[1] = lines[1].replace(lines[1].split(",")[7], "99.9")
    table.write_text("\n".join(lines), "utf-8")
    assert update(results) == [page] and "is 99.9, of" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("quote", "source", "told"),
    [
        ("reaches {} there", "table5:missing", "not there"),
        ("reaches {}", "table5:missing", "2 times"),
        ("Cora reaches {}", "table5/Nora/*", "table5/Nora/*"),
        ("Cora reaches {}", "table5/*/vanilla/L=2", "table5/*/vanilla/L=2"),  # four cells
        ("Cora reaches {}", "no/Cora", "no/Cora"),
        ("Cora reaches {}", "claims/no", "claims/no"),
        ("Cora reaches {}", "table5/*:x", "table5/*:x"),
        ("Cora reaches {}", "table5:missing; table5:missing", "for each {}"),
        ("Squirrel", "table5/*/a/* ~ table5/*/none/*", "no result"),
        ("Squirrel", "1 < 2; 1 == 2", "1 == 2"),
        ("Squirrel", "claims hem_order", "a table"),
    ],
)
def test_a_lost_quote_and_an_unknown_source_are_one_line(
    page: Path, quote: str, source: str, told: str
) -> None:
    results = written(page, "Cora reaches 1.5, Squirrel reaches 2.5.\n", **{quote: source})
    with pytest.raises(InputError) as error:
        print(*problems(results, "docs/page.md"))
    assert told in str(error.value) and "docs/page.md" in str(error.value)
    assert quote in str(error.value) or source in str(error.value)


def test_a_broken_condition_names_its_sentence(page: Path, capsys) -> None:
    results = written(page, "All is\nwell.", **{"All is well": "1 < 2; 1 > 2; 2 > 1; 3 > 4"})
    assert [line.split(": ")[1:3] for line in problems(results, "docs/page.md")] == [
        ["'All is well'", "1 > 2 does not hold; write the sentence anew"],
        ["'All is well'", "3 > 4 does not hold; write the sentence anew"],
    ]
    assert main(results) == 1 and capsys.readouterr().err.count("does not hold") == 2


def test_the_published_value_is_the_corrected_one() -> None:
    assert value(RESULTS, "table5/Chameleon/vanilla/L=32:published") == "22.37"


@pytest.mark.parametrize(
    "condition",
    [
        "claims/hem_prop1:verdict is contradicted",
        "table5/Cora/vanilla/L=2 > 100",
        "table5/Cora/vanilla/L=32 >> table5/Cora/vanilla/L=2",
        "table5/*/vanilla/L=32 >~ table5/*/vanilla/L=2",
        "table5/*/vanilla/L=2 ~ table5/*/vanilla/L=32",
    ],
)
def test_a_condition_can_fail(condition: str) -> None:
    assert not holds(RESULTS, condition)


def test_a_number_in_a_sentence_is_found_and_a_constant_is_not() -> None:
    text = "It is 3.1 points. At γ = −1.5 no. So\n71 % of\n`0.5`.\n\n| a |\n|---|\n| 7 of 9 |\n 4.2"
    found = [words[-4:] for words in without_source(text, {"It is {}": "a"})]
    assert found == ["71 %", "of 9", " 4.2"]
    assert without_source(text, {"It is 3.1": "by hand", "So 71 %": "tables/a.md"})[0].endswith(
        " 4.2"
    )
