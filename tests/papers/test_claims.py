"""Claims of the papers: entries are complete, and verdicts follow from the numbers."""

import importlib
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from made_up import measured
from made_up_results import (
    five,
    line,
    loss,
    overnight,
    paradox,
    rates,
    scales,
    table6,
    units,
    write,
)
from scipy.stats import norm

from oversmoothing.errors import Problems
from oversmoothing.lab.papers.claims import contranorm, engine, graphs, recent, theory
from oversmoothing.lab.papers.claims.engine import OTHERS, OWN
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.main import claims, entry, findings, publish, recorded
from oversmoothing.lab.papers.claims.rules import (
    Finding,
    Verdict,
    at_least_one,
    every,
    judged,
    little,
    partly,
    pooled,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.units import exponent
from oversmoothing.lab.report.verdict import Comparison, compare, differ

RESULTS = Path(__file__).parents[2] / "results"
BY_NAME = {claim.name: claim for claim in claims()}
HOLDS, IN_PART, CONTRADICTED, NOT_REPRODUCED, UNDECIDED, NOT_RUN = Verdict


def found(name: str, folder: Path = RESULTS) -> Finding:
    return BY_NAME[name].finding(Evidence(folder))


def test_recorded_entries_are_what_the_recorded_results_say() -> None:
    """After new results: `oversmoothing figure claims --recorded`. Bit for bit, in this order."""
    entries, evidence = recorded(RESULTS), Evidence(RESULTS)
    assert [*entries] == [*BY_NAME] and len(BY_NAME) == len(claims())
    for name, claim in BY_NAME.items():
        old = entries[name]
        assert entry(claim, old if claim.compute else findings(claim, evidence, old)) == old
        assert bool(old["n"]) == (old["verdict"] != NOT_RUN)


@pytest.mark.parametrize("name", [name for name, claim in BY_NAME.items() if claim.compute])
def test_small_experiments_give_their_recorded_verdicts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer draws than the recorded texts."""
    monkeypatch.setattr(theory, "DRAWS", 200)
    monkeypatch.setattr(recent, "VARIANCES", (1, 64))
    monkeypatch.setattr(recent, "FEW", 2)
    verdict = found(name).verdict
    if verdict == NOT_RUN:
        pytest.skip("its data are not at hand")
    assert verdict == recorded(RESULTS)[name]["verdict"]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({}, "one: "),  # no rule
        ({"read": "graphs.best", "not_run": "no data"}, "one: "),  # two
        ({"read": "graphs.best", "options": {"tabel": "table5"}}, "graphs.best"),
        ({"compute": "theory.nothing"}, "theory.nothing"),
        ({"not_run": "no data", "plaec": "3.1"}, "one.plaec: "),
        ({"rows": {"table": "table5", "row": "centered"}}, "one.rows.text: "),
        ({"compare": {"table": "a", "text": "", "pairs": {}, "within": "x"}}, "compare.within: "),
    ],
)
def test_a_wrong_entry_is_named_with_its_key(keys: dict, named: str, tmp_path: Path) -> None:
    told = {"place": "1", "statement": "It is so.", "experiment": "One."}
    path = tmp_path / "claims.yaml"
    path.write_text(json.dumps({"HEMNet": {"one": told | keys, "two": {}}}), "utf-8")
    with pytest.raises(Problems) as error:
        engine.load(path)
    lines = error.value.lines
    assert named in lines[0] and "claims.yaml: one" in lines[0]
    assert any("two.statement" in each for each in lines)  # all together


CASES: list[tuple[str, Callable[[Path, bool], None]]] = [
    ("centered_graphs_best6", table6),
    ("centered_graphs_tuning6", table6),
    ("centered_graphs_controls", table6),
    ("centered_graphs_table6", table6),
    ("contranorm_scale", scales),
    ("centered_paradox", paradox),
    ("centered_overnight_curve", overnight),
    ("centered_fig2", overnight),
    ("hem_kernel_miou", units),
    ("contranorm_loss", loss),
    ("contranorm_fig3a", rates),
]


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_claim_waits_for_its_runs_and_then_follows_their_numbers(
    name: str, make: Callable[[Path, bool], None], tmp_path: Path
) -> None:
    waiting = found(name, tmp_path)
    assert (waiting.verdict, waiting.n) == (NOT_RUN, "")
    assert "oversmoothing " in waiting.measured
    make(tmp_path, True)
    assert found(name, tmp_path).verdict == HOLDS
    make(tmp_path, False)
    worse, claim = found(name, tmp_path), BY_NAME[name]
    cannot = claim.scale and claim.paper != OWN  # small runs say little of a paper's
    assert worse.verdict == (NOT_REPRODUCED if cannot else CONTRADICTED) and worse.n


def test_without_its_results_a_claim_keeps_its_record_and_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module("oversmoothing.lab.papers.claims.main")
    monkeypatch.setattr(main, "records_of", lambda _: tmp_path)
    shutil.copy(RESULTS / "claims.json", tmp_path)
    assert main.main(["--only", "hem_order"]) == 1
    out, err = capsys.readouterr()
    assert "hem_order: " in err and "tables/seg_subset.csv" in err and err.count("\n") == 1
    assert recorded(tmp_path / "outputs") == recorded(RESULTS) and "hem_order" not in out


def test_a_claim_waits_with_the_command_of_its_runs(tmp_path: Path) -> None:
    claim, earlier = BY_NAME["hem_order"], {"measured": "no", "n": "", "verdict": str(NOT_RUN)}
    write(tmp_path, "seg_subset", [])
    assert "oversmoothing table" in findings(claim, Evidence(tmp_path), earlier)["measured"]
    with pytest.raises(NotRecordedError):
        Evidence(tmp_path).measured("seg_subset")


def test_a_rival_that_is_not_run_is_named_and_noise_decides_nothing(tmp_path: Path) -> None:
    noisy = [line(("Cora", "centered", "L=2"), [50, 90, 70]), line(("Cora", "gcnii", "L=2"), [1])]
    write(tmp_path, "table6", [*noisy, line(("Cora", "vanilla", "L=2"), five(65))])
    best = found("centered_graphs_best6", tmp_path)
    assert best.verdict == UNDECIDED
    assert "+5.0 to vanilla" in best.measured
    assert "not run: Cora L=2 LayerNorm, Cora L=2 PairNorm, Cora L=2 ContraNorm" in best.measured
    means = {"centered": 90, "vanilla": 65}
    write(tmp_path, "table6", [line(("Cora", r, "L=2"), five(mean)) for r, mean in means.items()])
    assert found("centered_graphs_best6", tmp_path).verdict == UNDECIDED
    for waits in ("centered_graphs_tuning6", "centered_graphs_table6"):
        assert found(waits, tmp_path).verdict == NOT_RUN


@pytest.mark.parametrize(("pairnorm", "verdict"), [(55, HOLDS), (60, UNDECIDED)])
def test_better_than_two_norms_is_better_than_each(
    tmp_path: Path, pairnorm: float, verdict: Verdict
) -> None:
    means = {"contranorm": 60, "pairnorm": pairnorm, "layernorm": 50}
    cells = [line(("Cora", row, "L=8"), five(mean)) for row, mean in means.items()]
    write(tmp_path, "table5", cells)
    assert found("contranorm_graphs_norms", tmp_path).verdict == verdict


@pytest.mark.parametrize(("at_half", "verdict"), [(70, HOLDS), (50, IN_PART)])
def test_a_cell_agrees_with_the_closest_scale_that_is_run(
    at_half: float, verdict: Verdict, tmp_path: Path
) -> None:
    place, printed = ("Cora", "contranorm", "L=16"), {"published": 70, "published_std": 0.1}
    others = [("Cora", row, "L=16") for row in ("vanilla", "layernorm", "pairnorm")]
    lines = [line(other, five(30), verdict="within", **printed) for other in others]
    write(tmp_path, "contranorm_table3", [*lines, line(place, five(60), verdict="off", **printed)])
    write(tmp_path, "table5", [line(place, five(60))])
    write(tmp_path, "table5_readings", [line(place, five(at_half), "s = 0.5")])
    assert found("contranorm_table3", tmp_path).verdict == verdict


@pytest.mark.parametrize(
    ("more", "verdict"),
    [({}, HOLDS), ({"multi": 70}, CONTRADICTED), ({"toco": 73}, CONTRADICTED)],
)
def test_one_method_of_several_stages_is_above(
    more: dict[str, float], verdict: Verdict, tmp_path: Path
) -> None:
    rows = {"ours": 72.5, "toco": 71, "afa": 66, "multi": 73} | more
    lines = [line(("", row, column), [], published=value)
             for row, value in rows.items() for column in ("val", "test")]  # fmt: skip
    write(tmp_path, "table1", lines)
    assert found("centered_table1_rank", tmp_path).verdict == verdict


def test_paired_tests_pair_seeds_and_not_places(tmp_path: Path) -> None:
    lines = [line(("", "double", "accuracy"), [11.1, 31.9], seeds="0 2")]
    lines += [line(("", row, "accuracy"), [10, 50, 31]) for row in ("softmax", "none", "tokens")]
    write(tmp_path, "external_norm", lines)
    assert "+1.00 [" in found("external_norm", tmp_path).measured


def test_one_seed_or_seeds_that_differ_decide_no_curve(tmp_path: Path) -> None:
    def history(*gaps: float) -> dict:
        points = zip((2000, 4000, 10000), gaps)
        return {"history": [{"step": s, "val_seg_common_miou": 30 + gap} for s, gap in points]}

    rows = {"none": [history(0, 0, 0)] * 2, "half": [history(-3, -5, -1), history(-3, 0, -4)]}
    lines = [line(("", row, column), [1, 2], results={str(i): s for i, s in enumerate(seeds)})
             for row, seeds in rows.items() for column in ("CAM", "seg.")]  # fmt: skip
    write(tmp_path, "wsss_overnight", lines)
    curve = found("centered_overnight_curve", tmp_path)
    assert curve.verdict == UNDECIDED
    assert "half, seg.: -3.0 -2.5 -2.5, change +0.50 [" in curve.measured
    first = [of | {"results": {"0": of["results"]["0"]}} for of in lines]
    write(tmp_path, "wsss_overnight", first)
    assert found("centered_overnight_curve", tmp_path).verdict == UNDECIDED


def test_a_verdict_changes_with_its_numbers(tmp_path: Path) -> None:
    assert found("hem_eta").verdict == HOLDS
    text = (RESULTS / "tables/hemnet_table1.csv").read_text("utf-8")
    (tmp_path / "tables").mkdir()
    path = tmp_path / "tables/hemnet_table1.csv"
    path.write_text(text.replace(",77.31,", ",79.31,"), "utf-8")  # EMANet is best at T = 1 now
    worse = found("hem_eta", tmp_path)
    assert worse.verdict == CONTRADICTED and "1 at T = 1" in worse.measured


def networks(folder: Path, **ranks: list[list[float]]) -> Evidence:
    """Effective rank after each of 12 layers, by aggregator and seed; DeiT-Ti's falls."""
    folder.mkdir()
    lines = {table: "" for table in (*contranorm.TABLES, "cls_pretrained")}
    for name, of in (ranks | {"none ": [[12 - n for n in range(12)]]}).items():
        config = {"trainer": {"lr": 1e-4}, "backbone": {"_part_": "backbone/bert"}}
        config |= {"aggregator": {"_part_": f"aggregator/{name.strip()}"}}
        layers = [dict.fromkeys(("effective_rank", "cosine"), seed) for seed in of]
        seeds = {n: {"layers_after": of, "layers_before": of} for n, of in enumerate(layers)}
        table = "cls_pretrained" if name == "none " else "text_rates"
        lines[table] += json.dumps({"id": name, "config": config, "seeds": seeds}) + "\n"
    for table, text in lines.items():
        (folder / f"{table}.jsonl").write_text(text)
    return Evidence(folder)


def test_a_rank_falls_where_the_mean_over_seeds_falls_nearly_always(tmp_path: Path) -> None:
    down = [float(20 - n) for n in range(12)]
    swapped = [*down[:6], *reversed(down[6:])]  # ρ = -0.76
    once = [down[1], down[0], *down[2:]]  # ρ = -0.99
    cases = [([once, down, down], HOLDS), ([swapped], IN_PART)]
    cases += [([down[::-1], [d / 2 for d in down]], IN_PART)]  # the mean rises
    for number, (seeds, verdict) in enumerate(cases):
        evidence = networks(tmp_path / str(number), none=seeds)
        assert contranorm.falling_rank(evidence).verdict is verdict


@pytest.mark.parametrize(("last", "verdict"), [(9.9, CONTRADICTED), (10.1, HOLDS)])
def test_half_the_first_rank_is_a_collapse_even_where_it_is_higher(
    tmp_path: Path, last: float, verdict: Verdict
) -> None:
    ours = [[20.0] * 11 + [last + shift] for shift in (-0.05, 0.0, 0.05)]
    base = [[20.0] * 11 + [5.0 + shift] for shift in (-0.05, 0.01, 0.05)]
    evidence = networks(tmp_path / "ranks", contranorm=ours, none=base)
    assert contranorm.no_collapse(evidence).verdict is verdict


# Rules


def test_a_difference_is_little_if_its_whole_interval_is() -> None:
    for low, high, expected in [(-1, 1, True), (0.2, 1.5, None), (1.1, 3, False), (-9, -2, False)]:
        assert little(Comparison((0.0, 0.0), low, high), points=1) is expected
    assert little(Comparison((0.1,)), points=1) is None  # one seed


def test_one_counterexample_refutes_a_claim_about_all_cases() -> None:
    assert every([True, True]) == partly([True]) == HOLDS
    assert every([True, False]) == partly([False]) == CONTRADICTED
    assert partly([True, False]) == IN_PART
    assert every([]) == partly([]) == tendency([None, None]) == UNDECIDED
    assert tendency([None, True, True]) == HOLDS
    assert tendency([None, True]) == tendency([None, False]) == UNDECIDED  # one of two decides none
    assert tendency([None, None, False], all_of_them=True) == CONTRADICTED
    assert at_least_one([False, None, True]) == HOLDS
    assert at_least_one([False, None]) == UNDECIDED
    assert at_least_one([False, False]) == CONTRADICTED
    assert share([True, False], "cells") == "1 of 2 cells"
    assert share([True, None, False], "cells") == "1 of 2 decided cells (1 not decided)"


def test_several_comparisons_need_smaller_p() -> None:
    clear = Comparison((1.0, 1.1, 1.2), 0.9, 1.3, 0.03)
    vague = Comparison((1.0, -1.0, 0.1), -2.0, 2.0, 0.8)
    assert judged([clear]) == [True]
    assert judged([clear, vague]) == [None, None]  # 0.03 is above 0.05 / 2
    assert judged([Comparison((-5.0,))]) == [None]


def test_several_weak_comparisons_decide_together() -> None:
    """Stouffer: z is the sum of the scores over √k; turning both sides turns the sign only."""
    ups = [compare(measured(*of), measured(0, 0, 0)) for of in ((1, 2, 1.5), (2, 1, 3), (1, 4, 2))]
    downs = [
        compare(measured(0, 0, 0), measured(*of)) for of in ((1, 2, 1.5), (2, 1, 3), (1, 4, 2))
    ]
    assert judged(ups) == [None] * 3
    z = sum(norm.isf(c.p / 2) for c in ups) / math.sqrt(3)
    assert pooled(ups).p == pytest.approx(2 * norm.sf(z)) == pooled(downs[::-1]).p
    assert (pooled(ups).higher, pooled(downs).higher) == (True, False)
    assert pooled([*ups, Comparison((9.0,))]).number == 3  # one seed
    assert pooled([ups[0], downs[0]]).higher is None and pooled([]).higher is None


def test_a_comparison_that_is_open_decides_only_what_holds(tmp_path: Path) -> None:
    for shift, verdict in ((0.1, HOLDS), (9, UNDECIDED)):
        rows = {"external": 50 + shift, "self": 50}
        lines = [line(("", row, "accuracy"), five(mean)) for row, mean in rows.items()]
        write(tmp_path, "attention_parts", lines)
        assert found("external_level", tmp_path).verdict == verdict


def test_a_gap_that_had_no_noise_grows_by_welchs_test_of_the_gap_after() -> None:
    flat, generator = measured(60.0, 60.0), torch.Generator().manual_seed(0)
    for _ in range(300):
        a = measured(*(2 + torch.randn(3, generator=generator)).tolist())
        b = measured(*torch.randn(4, generator=generator).tolist())
        higher = (a.mean > b.mean) if differ(a, b) else None
        assert graphs.grows((flat, flat), (a, b), 1) is higher


# Theory


def test_attention_maps_are_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    x, q, k = (theory.normal(*size, generator) for size in ((6, 4), (4, 4), (4, 4)))
    expected = F.scaled_dot_product_attention(x @ q, x @ k, torch.eye(6).double())
    torch.testing.assert_close(theory.attention(x, q, k), expected)


def test_attention_shrinks_the_range_of_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = theory.normal(6, 4, generator), theory.normal(4, 4, generator)
    outputs, kept = zip(*itertools.islice(theory.layers(x, lambda: (w, w)), 10))
    ranges = [float((of.amax(dim=-2) - of.amin(dim=-2)).max()) for of in outputs]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(ranges)) and all(kept)
    assert ranges[-1] < ranges[0] / 2
    assert theory.converges(True, [True, False]) is False
    assert theory.converges(False, [True]) is None


def test_the_counterexample_to_proposition_2_lowers_the_effective_rank() -> None:
    """Written out: singular values 1.4, 0.8 become 0.1904, 1.0592 at s = 0.9."""
    before, after = theory.ranks(torch.tensor([1.4, 0.8], dtype=torch.float64), 0.9)
    p = torch.tensor([0.1904, 1.0592], dtype=torch.float64) / 1.2496
    assert after == pytest.approx(float(torch.special.entr(p).sum().exp()), abs=1e-6)
    assert after < before and 1 + (1 - 1.4**2) * 0.9 > 0


def test_the_bound_of_proposition_1_is_the_minimum_over_unit_vectors() -> None:
    """2 (u − ū)·(u − Āu), on a grid."""
    *_, (H, _) = itertools.islice(theory.draws(), 3)
    H = H[:3]  # its P has a negative eigenvalue
    angles = torch.linspace(0, math.pi, 600, dtype=torch.float64)
    a, b = torch.meshgrid(angles, angles, indexing="ij")
    u = torch.stack([a.sin() * b.cos(), a.sin() * b.sin(), a.cos()], -1).flatten(0, 1)
    moved = u - u @ theory.softmax_map(H).mT
    lowest = float(2 * ((u - u.mean(-1, keepdim=True)) * moved).sum(-1).min())
    assert theory.lowest_eigenvalue(H) == pytest.approx(lowest, abs=1e-3) and lowest < -0.02


def test_an_exponent_is_that_of_known_costs() -> None:
    sizes = [10, 100, 1000]
    assert exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [7, 7, 7]) == pytest.approx(0, abs=1e-12)


# The command


def test_all_is_written(tmp_path: Path) -> None:
    same = {"measured": "σ | μ", "n": "5 seeds", "verdict": str(IN_PART)}
    paths = publish([entry(claim, same) for claim in claims()], tmp_path)
    text = (tmp_path / "claims.md").read_text("utf-8")
    assert text.count("σ / μ") == text.count("(5 seeds)") == len(BY_NAME)
    apart = {name: sum(claim.paper == name for claim in claims()) for name in (OTHERS, OWN)}
    assert f"| the papers above | 0 | {len(BY_NAME) - sum(apart.values())} | 0 | 0 | 0 |" in text
    for name, number in apart.items():
        assert re.search(rf"\| \[{name}\]\(#\S+\) \| 0 \| {number} \| 0 \| 0 \| 0 \|", text)
    assert [e["name"] for e in json.loads(paths[0].read_text("utf-8"))] == [*BY_NAME]
