"""Sentences without numbers agree with the results.

A sentence whose words depend on results is followed by ``<!--? LEFT SIGN RIGHT -->``, which no page
shows. With the sign ``is``, LEFT is a fact (``report/facts.py``), such as a claim's verdict, and
RIGHT its text. With the other signs both sides are cells of tables or numbers:

- ``>``, ``<``: LEFT has the higher, the lower mean;
- ``>>``: LEFT is significantly higher, by Welch's t-test at p < 0.05 over the number of pairs;
- ``~``: the two do not differ significantly;
- ``>~``: LEFT is not significantly lower.

A key with ``*`` stands for all its cells. The other side has as many, in the same order.
"""

import csv
import re

import pytest
from guide import ROOT

from oversmoothing.lab.report.facts import fits, value
from oversmoothing.lab.report.verdict import Measured, differ

RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONDITION = re.compile(r"<!--\? (.+?) (is|[<>]|>>|>~|~) (.+?) -->")
CONDITIONS = [
    pytest.param(*found.groups(), id=f"{page.stem}: {found[1]} {found[2]} {found[3]}")
    for page in PAGES
    for found in CONDITION.finditer(page.read_text("utf-8"))
]


def cells(key: str) -> list[Measured]:
    """The cells that a key names, as measured."""
    name, _, wanted = key.partition("/")
    with (RESULTS / f"tables/{name}.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["values"]]
    chosen = [line for line in lines if fits(line, wanted)]
    assert chosen, f"{key} names no measured cell"
    return [measured(line["values"], line["seeds"]) for line in chosen]


def measured(values: str, seeds: str = "0") -> Measured:
    return Measured(tuple(map(float, values.split())), "", 0.0, tuple(map(int, seeds.split())))


def side(text: str) -> list[Measured]:
    """The cells that one side names, or the number that it is."""
    return [measured(text)] if re.fullmatch(r"-?[\d.]+", text) else cells(text)


def holds(left: str, sign: str, right: str) -> bool:
    if sign == "is":
        return value(RESULTS, left) == right
    if sign == "<":
        return holds(right, ">", left)
    pairs = list(zip(side(left), side(right), strict=True))
    clear = [differ(a, b, len(pairs)) for a, b in pairs]
    higher = [a.mean > b.mean for a, b in pairs]
    if sign == "~":
        return not any(clear)
    if sign == ">~":
        return all(high or not sure for high, sure in zip(higher, clear))
    return all(higher) and (sign == ">" or all(clear))


@pytest.mark.parametrize(("left", "sign", "right"), CONDITIONS)
def test_a_sentence_says_what_the_results_say(left: str, sign: str, right: str) -> None:
    """Where this fails, the results have changed: read the sentence again and write it anew."""
    assert holds(left, sign, right)


def test_every_hidden_condition_is_read() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert text.count("<!--?") == len(CONDITIONS) > 0


@pytest.mark.parametrize(
    ("left", "sign", "right"),
    [
        ("claims/hem_prop1:verdict", "is", "contradicted"),
        ("table5/Cora/vanilla/L=2", ">", "100"),
        ("table5/Cora/vanilla/L=32", ">>", "table5/Cora/vanilla/L=2"),
        ("table5/*/vanilla/L=32", ">~", "table5/*/vanilla/L=2"),
        ("table5/*/vanilla/L=2", "~", "table5/*/vanilla/L=32"),
    ],
)
def test_a_condition_can_fail(left: str, sign: str, right: str) -> None:
    assert not holds(left, sign, right)
