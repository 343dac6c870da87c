"""Claims of the papers: entries are complete, and verdicts follow from the numbers."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.papers.claims import centered_limits, contranorm_theory
from oversmoothing.lab.papers.claims.claim import (
    OWN,
    Finding,
    Verdict,
    at_least_one,
    directions,
    every,
    little,
    partly,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.cost import exponent
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.main import (
    ABOUT,
    CLAIMS,
    FOUND,
    chosen,
    entry,
    findings,
    recorded,
)
from oversmoothing.lab.papers.claims.write import publish
from oversmoothing.lab.report.verdict import Comparison

RESULTS = Path(__file__).parents[2] / "results"
EVIDENCE = Evidence(RESULTS)
BY_NAME = {claim.name: claim for claim in CLAIMS}


def finding(name: str, folder: Path = RESULTS) -> Finding:
    return BY_NAME[name].finding(Evidence(folder))


def changed(tmp_path: Path, table: str, change: Callable[[str], str]) -> Path:
    """A folder of results with one table, in which something is changed."""
    (tmp_path / "tables").mkdir()
    text = (RESULTS / f"tables/{table}.csv").read_text("utf-8")
    assert change(text) != text
    (tmp_path / f"tables/{table}.csv").write_text(change(text), "utf-8")
    return tmp_path


def test_every_claim_has_one_entry_that_tells_what_the_code_tells() -> None:
    entries = recorded(RESULTS)
    assert [*entries] == [claim.name for claim in CLAIMS]
    assert len(BY_NAME) == len(CLAIMS)
    for claim in CLAIMS:
        found = entries[claim.name]
        assert {key: found[key] for key in ABOUT} == {key: getattr(claim, key) for key in ABOUT}
        assert (claim.measure is None) == bool(claim.missing)
        assert bool(found["n"]) == (found["verdict"] != Verdict.NOT_RUN)


def test_recorded_entries_are_what_the_recorded_results_say() -> None:
    """After new results: `make claims RECORDED=1`."""
    entries = recorded(RESULTS)
    for claim in (claim for claim in CLAIMS if claim.cheap):
        now = findings(claim, EVIDENCE, entries[claim.name])
        assert {key: now[key] for key in FOUND} == {k: entries[claim.name][k] for k in FOUND}


@pytest.mark.parametrize("name", [name for name, claim in BY_NAME.items() if not claim.cheap])
def test_small_experiments_give_their_recorded_verdicts(name: str) -> None:
    verdict = finding(name).verdict
    if verdict == Verdict.NOT_RUN:
        pytest.skip("its data are not at hand")
    assert verdict == recorded(RESULTS)[name]["verdict"]


def test_a_difference_is_little_if_its_whole_interval_is() -> None:
    for low, high, expected in [(-1, 1, True), (0.2, 1.5, None), (1.1, 3, False), (-9, -2, False)]:
        assert little(Comparison((0.0, 0.0), low, high), points=1) is expected
    assert little(Comparison((0.1,)), points=1) is None  # one seed


def test_one_counterexample_refutes_a_claim_about_all_cases() -> None:
    assert every([True, True]) == partly([True]) == Verdict.HOLDS
    assert every([True, False]) == partly([False]) == Verdict.CONTRADICTED
    assert partly([True, False]) == Verdict.IN_PART
    assert every([]) == partly([]) == tendency([None, None]) == Verdict.UNDECIDED
    assert tendency([None, True]) == Verdict.HOLDS
    assert tendency([None, None, True]) == Verdict.UNDECIDED  # fewer than half are decided
    assert tendency([None, None, False], all_of_them=True) == Verdict.CONTRADICTED
    assert at_least_one([False, None, True]) == Verdict.HOLDS
    assert at_least_one([False, None]) == Verdict.UNDECIDED
    assert at_least_one([False, False]) == Verdict.CONTRADICTED
    assert share([True, False], "cells") == "1 of 2 cells"
    assert share([True, None, False], "cells") == "1 of 2 decided cells (1 not decided)"


def test_several_comparisons_need_smaller_p() -> None:
    clear = Comparison((1.0, 1.1, 1.2), 0.9, 1.3, 0.03)
    vague = Comparison((1.0, -1.0, 0.1), -2.0, 2.0, 0.8)
    assert directions([clear]) == Verdict.HOLDS
    assert directions([clear, vague]) == Verdict.UNDECIDED  # 0.03 is above 0.05 / 2
    assert directions([Comparison((-5.0,))]) == Verdict.UNDECIDED


def test_the_counterexample_to_proposition_2_lowers_the_effective_rank() -> None:
    """Written out: singular values 1.4, 0.8 become 0.1904, 1.0592 at s = 0.9."""
    sigma = torch.tensor([1.4, 0.8], dtype=torch.float64)
    before, after = contranorm_theory.ranks(sigma, 0.9)
    p = torch.tensor([0.1904, 1.0592], dtype=torch.float64) / 1.2496
    assert after == pytest.approx(float(torch.special.entr(p).sum().exp()), abs=1e-6)
    assert after < before
    assert 1 + (1 - 1.4**2) * 0.9 > 0


def test_an_exponent_is_that_of_known_costs() -> None:
    sizes = [10, 100, 1000]
    assert exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [7, 7, 7]) == pytest.approx(0, abs=1e-12)


def test_proposition_1_bounds_the_variance() -> None:
    H, s = next(contranorm_theory.draws(1))
    before, after = contranorm_theory.variances(H, s)
    assert after >= (1 + s * contranorm_theory.bounds(H)) * before
    alike = torch.ones(4, 3, dtype=torch.float64)
    assert contranorm_theory.variances(alike, s) == (0.0, 0.0)


def test_attention_shrinks_the_range_of_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    fixed = w[:4], w[:4]
    ranges = [float((of.amax(dim=-2) - of.amin(dim=-2)).max()) for of, _ in shrinking(x, fixed)]
    assert all(after < before for before, after in zip(ranges, ranges[1:]))
    assert all(kept for _, kept in shrinking(x, fixed))
    assert centered_limits._converges(True, [True, False]) is False
    assert centered_limits._converges(False, [True]) is None


def shrinking(x: torch.Tensor, fixed: tuple[torch.Tensor, torch.Tensor]) -> list:
    return list(itertools.islice(centered_limits.layers(x, lambda: fixed), 10))


def test_a_verdict_changes_with_its_numbers(tmp_path: Path) -> None:
    assert finding("hem_eta").verdict == Verdict.HOLDS
    worse = changed(tmp_path, "hemnet_table1", lambda text: text.replace(",77.31,", ",79.31,"))
    found = finding("hem_eta", worse)  # EMANet is best at T = 1 now
    assert found.verdict == Verdict.CONTRADICTED
    assert "1 at T = 1" in found.measured


def test_a_claim_without_its_runs_keeps_its_record(tmp_path: Path) -> None:
    header = (RESULTS / "tables/seg_subset.csv").read_text("utf-8").splitlines()[0]
    empty = changed(tmp_path, "seg_subset", lambda _: header + "\n")
    claim, old = BY_NAME["hem_order"], recorded(RESULTS)["hem_order"]
    assert claim.finding(Evidence(empty)).verdict == Verdict.NOT_RUN
    assert findings(claim, Evidence(empty), old) == old
    with pytest.raises(NotRecordedError, match="make table NAME=seg_subset"):
        Evidence(empty).measured("seg_subset")["", "hem", "SS"]


def test_all_is_written_and_shown_on_the_page(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "docs/papers/claims.md"
    (results / "tables").mkdir(parents=True)
    page.parent.mkdir(parents=True)
    shutil.copy(RESULTS.parent / "docs/papers/claims.md", page)
    found = {"measured": "σ | μ", "n": "5 seeds", "verdict": str(Verdict.IN_PART)}
    paths = publish([entry(claim, found) for claim in CLAIMS], results)
    assert page in paths
    text = page.read_text("utf-8")
    assert text.count("σ / μ") == text.count("(5 seeds)") == len(CLAIMS)
    ours = sum(claim.paper == OWN for claim in CLAIMS)
    assert f"| all papers | 0 | {len(CLAIMS) - ours} | 0 | 0 | 0 |" in text
    assert f"| {OWN} | 0 | {ours} | 0 | 0 | 0 |" in text
    assert [e["name"] for e in json.loads(paths[0].read_text("utf-8"))] == [*BY_NAME]


def test_patterns_choose_claims() -> None:
    names = [claim.name for claim in chosen(CLAIMS, ["contranorm_prop*"])]
    assert names == ["contranorm_prop1", "contranorm_prop2", "contranorm_prop2_text",
                     "contranorm_prop2_small"]  # fmt: skip
    assert chosen(CLAIMS, ["contranorm_prop*"], recorded=True) == []
    with pytest.raises(InputError, match="--only nothing"):
        chosen(CLAIMS, ["nothing"])
