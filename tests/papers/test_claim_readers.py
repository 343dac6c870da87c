"""Claims that runs in the background will answer: made-up results, whose numbers decide."""

from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_results import (
    ablation,
    eamlp,
    five,
    line,
    longer,
    loss,
    maps,
    overnight,
    paradox,
    rates,
    readings,
    scales,
    table6,
    units,
    write,
)

from oversmoothing.lab.papers.claims.claim import Finding, Verdict
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.main import CLAIMS, findings

BY_NAME = {claim.name: claim for claim in CLAIMS}
CASES: list[tuple[str, Callable[[Path, bool], None]]] = [
    ("centered_graphs_best6", table6),
    ("centered_graphs_tuning6", table6),
    ("centered_graphs_controls", table6),
    ("centered_graphs_table6", table6),
    ("centered_graphs_best20", readings),
    ("centered_graphs_deep20", readings),
    ("centered_graphs_vanilla", readings),
    ("contranorm_scale", scales),
    ("centered_paradox", paradox),
    ("centered_overnight_cam", overnight),
    ("centered_overnight_seg", overnight),
    ("centered_overnight_curve", overnight),
    ("centered_fig2", overnight),
    ("centered_448", overnight),
    ("hem_kernel_miou", units),
    ("hem_order_long", longer),
    ("contranorm_terms", ablation),
    ("contranorm_norms", ablation),
    ("contranorm_table4", ablation),
    ("external_batchnorm_digits", eamlp),
    ("contranorm_loss", loss),
    ("contranorm_fig3a", rates),
    ("contranorm_fig2_bert", maps),
    ("contranorm_fig2c", maps),
]


def found(name: str, folder: Path) -> Finding:
    return BY_NAME[name].finding(Evidence(folder))


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_claim_waits_for_its_runs_and_then_follows_their_numbers(
    name: str, make: Callable[[Path, bool], None], tmp_path: Path
) -> None:
    waiting = found(name, tmp_path)
    assert (waiting.verdict, waiting.n) == (Verdict.NOT_RUN, "")
    assert "make " in waiting.measured
    make(tmp_path, True)
    assert found(name, tmp_path).verdict == Verdict.HOLDS
    make(tmp_path, False)
    worse = found(name, tmp_path)
    assert worse.verdict == Verdict.CONTRADICTED and worse.n


def test_a_rival_that_is_not_run_is_named_and_noise_decides_nothing(tmp_path: Path) -> None:
    noisy = [line(("Cora", "centered", "L=2"), [50, 90, 70]), line(("Cora", "gcnii", "L=2"), [1])]
    noisy += [line(("Cora", "vanilla", "L=2"), five(65))]
    write(tmp_path, "table6", noisy)
    best = found("centered_graphs_best6", tmp_path)
    assert best.verdict == Verdict.UNDECIDED
    assert "+5.0 to vanilla" in best.measured
    assert "not run: Cora L=2 LayerNorm, Cora L=2 PairNorm, Cora L=2 ContraNorm" in best.measured
    best_of_some = [line(("Cora", row, "L=2"), five(mean))
                    for row, mean in {"centered": 90, "vanilla": 65}.items()]  # fmt: skip
    write(tmp_path, "table6", best_of_some)
    assert found("centered_graphs_best6", tmp_path).verdict == Verdict.UNDECIDED
    for waits in ("centered_graphs_tuning6", "centered_graphs_table6"):
        assert found(waits, tmp_path).verdict == Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("none", "contranorm"),
    [([30, 60, 50], [99, 61, 80]), ([51, 60], [51, 82, 80])],
)
def test_noise_decides_no_fall_with_depth(
    none: list[int], contranorm: list[int], tmp_path: Path
) -> None:
    rates(tmp_path, good=True)
    lines = [line(("accuracy", row, f"L=24, {rate}"), values)
             for rate in ("5e-4", "1e-4")
             for row, values in (("none", none), ("contranorm", contranorm))]  # fmt: skip
    write(tmp_path, "text_rates", lines)
    assert found("contranorm_fig3a", tmp_path).verdict == Verdict.UNDECIDED


def test_six_comparisons_need_a_sixth_of_the_p(tmp_path: Path) -> None:
    loss(tmp_path, good=True)
    level = {"accuracy": five(9.7), "mean cosine": five(10.2)}
    level = {column: [1.001 * value for value in of] for column, of in level.items()}
    noisy = [value + 1 + d for value, d in zip(five(10), (-0.7, 0.35, 0.7, -0.35, 0))]  # p = 0.016
    columns = {**level, "effective rank": noisy}
    lines = [line(("", "none", column), five(10)) for column in columns]
    lines += [line(("", row, c), of) for row in ("0.01", "0.1", "1") for c, of in columns.items()]
    write(tmp_path, "contranorm_loss", lines)
    assert found("contranorm_loss", tmp_path).verdict == Verdict.HOLDS


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"multi": 70}, Verdict.CONTRADICTED),
        ({"toco": 73}, Verdict.CONTRADICTED),
    ],
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
    place, rows = ("", "double", "accuracy"), ("softmax", "none", "tokens")
    lines = [line(place, [11.1, 31.9], seeds="0 2")]
    lines += [line(("", row, "accuracy"), [10, 50, 31]) for row in rows]
    write(tmp_path, "external_norm", lines)
    assert "+1.00 [" in found("external_norm", tmp_path).measured


def test_a_gap_is_that_to_the_rows_of_both_tables(tmp_path: Path) -> None:
    table6(tmp_path, good=True)
    rows = {"vanilla": 60, "contranorm": 90, "centered": 60}
    tuned = [line(("Cora", row, "L=16"), five(mean)) for row, mean in rows.items()]
    write(tmp_path, "table6", [of for of in tuned if of["key"] != "contranorm"])
    gap = found("centered_graphs_tuning6", tmp_path)
    assert gap.verdict == Verdict.UNDECIDED and "Cora L=16 +0.0 → +0.0?" in gap.measured


def test_one_seed_or_seeds_that_differ_decide_no_curve(tmp_path: Path) -> None:
    def history(*gaps: float) -> dict:
        points = zip((2000, 4000, 10000), gaps)
        return {"history": [{"step": s, "val_seg_common_miou": 30 + gap} for s, gap in points]}

    rows = {"none": [history(0, 0, 0)] * 2, "half": [history(-3, -5, -1), history(-3, 0, -4)]}
    lines = [line(("", row, column), [1, 2], results={str(i): s for i, s in enumerate(seeds)})
             for row, seeds in rows.items() for column in ("CAM", "seg.")]  # fmt: skip
    write(tmp_path, "wsss_overnight", lines)
    curve = found("centered_overnight_curve", tmp_path)
    assert curve.verdict == Verdict.UNDECIDED
    first = [of | {"results": {"0": of["results"]["0"]}} for of in lines]
    write(tmp_path, "wsss_overnight", first)
    assert found("centered_overnight_curve", tmp_path).verdict == Verdict.UNDECIDED
    assert "half, seg.: -3.0 -2.5 -2.5, change +0.50 [" in curve.measured


def test_a_claim_that_was_not_run_has_the_current_reason() -> None:
    claim, nowhere = BY_NAME["centered_fig2"], Evidence(Path("nowhere"))
    old = {"measured": "an earlier reason", "n": "", "verdict": str(Verdict.NOT_RUN)}
    assert "make table NAME=wsss_overnight" in findings(claim, nowhere, old)["measured"]
    known = old | {"n": "2 seeds", "verdict": str(Verdict.HOLDS)}
    assert findings(claim, nowhere, known) == known
