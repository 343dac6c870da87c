"""Claims that runs in the background will answer: made-up results, whose numbers decide."""

import csv
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from oversmoothing.papers.claims.claim import Finding, Verdict
from oversmoothing.papers.claims.evidence import Evidence
from oversmoothing.papers.claims.main import CLAIMS, findings

BY_NAME = {claim.name: claim for claim in CLAIMS}
HEAD = ["block", "row", "key", "column", "reading", "values", "seeds", "published",
        "published_std", "corrected", "verdict", "run"]  # fmt: skip
Place = tuple[str, str, str]


def line(place: Place, values: Sequence[float], reading: str = "", **more: object) -> dict:
    named = dict(zip(("block", "key", "column"), place)) | {"reading": reading, "row": place[1]}
    numbers = {"values": values, "seeds": range(len(values))}
    texts = {key: " ".join(map(str, of)) for key, of in numbers.items()}
    return named | texts | {"run": "/".join([*place, reading])} | more


def write(folder: Path, table: str, lines: Sequence[Mapping[str, object]]) -> None:
    """The table, and the runs behind it as the claims read them."""
    path = folder / f"tables/{table}.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, restval="")
        writer.writeheader()
        writer.writerows({key: of[key] for key in HEAD if key in of} for of in lines)
    runs = [{"id": of["run"], "seeds": of.get("results", {})} for of in lines]
    (folder / f"{table}.jsonl").write_text("\n".join(map(json.dumps, runs)), "utf-8")


def five(mean: float) -> list[float]:
    return [mean + shift for shift in (-0.2, -0.1, 0.0, 0.1, 0.2)]


def table6(folder: Path, good: bool) -> None:
    """Centering 3 points above or below every other row; in Table 5 it was level."""
    rows = ("vanilla", "layernorm", "pairnorm", "contranorm", "residual", "gcnii")
    ours = 73 if good else 67
    tuned = [line(("Cora", row, "L=16"), five(70)) for row in rows]
    tuned += [line(("Cora", "centered", "L=16"), five(ours), published=73, published_std=0.1,
                   verdict="within" if good else "off")]  # fmt: skip
    write(folder, "table6", tuned)
    plain = [line(("Cora", row, "L=16"), five(60)) for row in (*rows[:4], "centered")]
    write(folder, "table5", plain)


def readings(folder: Path, good: bool) -> None:
    rows = {"vanilla": 50, "layernorm": 55, "pairnorm": 52, "centered": 60 if good else 45}
    place = "Cora", "centered", "L=16"
    found = [line(("Cora", r, "L=16"), five(mean) * 4, "20 seeds") for r, mean in rows.items()]
    write(folder, "table5_readings", [*found, line(place, five(rows["centered"]), "no LayerNorm")])
    vanilla = line(("Cora", "vanilla", "L=16"), five(50), published=50)
    write(folder, "table5", [vanilla, line(place, five(58), published=65)])


def scales(folder: Path, good: bool) -> None:
    """By test, s = 0.2 is best; validation chooses 0.8, or if not good, 0.5."""
    place, names = ("Cora", "contranorm", "L=16"), {0.2: "s = 0.2", 0.5: "s = 0.5, deep",
                                                    0.8: "s = 0.8, deep", 1.0: ""}  # fmt: skip
    test = {0.2: 75, 0.5: 55, 0.8: 68.75, 1.0: 46}
    validation = {0.2: 60, 0.5: 61 if good else 71, 0.8: 70, 1.0: 50}
    lines = [
        line(place, five(test[s]), name, results={"0": {"val_accuracy": validation[s]}})
        for s, name in names.items()
    ]
    write(folder, "table5_readings", lines[:-1])
    write(folder, "table5", lines[-1:])
    write(folder, "contranorm_table3", [line(place, [], published=68.75)])


def overnight(folder: Path, good: bool) -> None:
    """Two seeds; the gap to γ = 0 goes from −8 to +4, or from −2 to −4."""
    columns = {"CAM": "val_cam_best_common_miou", "seg.": "val_seg_common_miou"}
    bounds = ("CAM boundary", "pseudo label boundary", "seg. boundary")
    first, last = (-8, 4) if good else (-2, -4)
    lines = []
    for row in ("none", "half", "full", "adapted"):
        start, end = (0, 0) if row == "none" else (first, last)
        history = [{"step": step, **{metric: 30 + gap for metric in columns.values()}}
                   for step, gap in ((2000, start), (8000, start - 1))]  # fmt: skip
        values = [40 + end, 41 + end + 0.01 * (row != "none")]
        trained = dict.fromkeys(columns.values(), 30 + end)
        results = {str(seed): {"history": history, **trained} for seed in range(2)}
        lines += [line(("", row, c), values, results=results) for c in (*columns, *bounds)]
    write(folder, "wsss_overnight", lines)


def units(folder: Path, good: bool) -> None:
    shift = 0.4 if good else 3.0
    rows = {"hem": 40.0, "hem_distance": 40.0 + shift}
    lines = [line(("", row, column), [mean, mean + 0.5, mean + 1])
             for row, mean in rows.items() for column in ("SS", "MS + Flip")]  # fmt: skip
    write(folder, "seg_subset", lines)


def longer(folder: Path, good: bool) -> None:
    rows = {"fcn": 40, "em": 44, "hem": 48, "em_gradient": 41}
    sign = 1 if good else -1
    write(folder, "seg_long", [line(("", r, "SS"), five(sign * m)) for r, m in rows.items()])


def ablation(folder: Path, good: bool) -> None:
    rows = {"none": 60, "l2": 79.5 if good else 70, "identity": 65, "layernorm": 80, "vanilla": 85}
    both = -0.7 if good else 4
    lines = [line(("", row, "stop-gradient"), five(mean)) for row, mean in rows.items()]
    lines += [line(("", r, "both terms"), five(rows[r] + both)) for r in [*rows][:-1]]
    write(folder, "contranorm_ablation", lines)


def eamlp(folder: Path, good: bool) -> None:
    rows = {"layer": 70, "batch": 80 if good else 60}
    means = [line(("", row, "accuracy"), five(mean)) for row, mean in rows.items()]
    write(folder, "eamlp_norms", means)


def paradox(folder: Path, good: bool) -> None:
    """L_seg raises Mᵐ, L_reg and centering lower it; or the other way round."""
    sign = 1 if good else -1
    shifts = {"aux": 0, "seg": 9, "reg": 6, "seg_centered": 3, "reg_centered": 3}
    lines = []
    for number, (row, shift) in enumerate(shifts.items()):  # the differences vary a little
        values = [(1 + 0.01 * number) * value for value in five(20 + sign * shift)]
        lines += [line(("", row, "Mᵐ"), values)]
    write(folder, "wsss_ablation", lines)


def loss(folder: Path, good: bool) -> None:
    """No gain in accuracy, tokens more alike; or three points more, and tokens apart."""
    shifts = {"accuracy": -0.3, "effective rank": -2, "mean cosine": 0.2}
    shifts = shifts if good else {"accuracy": 3, "effective rank": 2, "mean cosine": -0.2}
    lines = [line(("", "none", column), five(10)) for column in shifts]
    for row, (column, shift) in itertools.product(("0.01", "0.1", "1"), shifts.items()):
        lines += [line(("", row, column), [1.001 * value for value in five(10 + shift)])]
    write(folder, "contranorm_loss", lines)


def rates(folder: Path, good: bool) -> None:
    """24 layers fall 21 points without it; with it 1 point, or 20."""
    means = {"none": 60, "contranorm": 80 if good else 61}
    lines = [line(("accuracy", row, f"L=24, {rate}"), five(mean))
             for row, mean in means.items() for rate in ("5e-4", "1e-4")]  # fmt: skip
    write(folder, "text_rates", lines)
    write(folder, "text_depth", [line(("", "none", "L=2"), five(81))])


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
    ("hem_kernel_miou", units),
    ("hem_order_long", longer),
    ("contranorm_terms", ablation),
    ("contranorm_norms", ablation),
    ("contranorm_table4", ablation),
    ("external_batchnorm_digits", eamlp),
    ("contranorm_loss", loss),
    ("contranorm_fig3a", rates),
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
    for waits in ("centered_graphs_tuning6", "centered_graphs_table6"):
        assert found(waits, tmp_path).verdict == Verdict.NOT_RUN


def test_noise_decides_no_fall_with_depth(tmp_path: Path) -> None:
    rates(tmp_path, good=True)
    rows = {"none": [30, 60, 50], "contranorm": [99, 61, 80]}
    lines = [line(("accuracy", row, f"L=24, {rate}"), of)
             for rate in ("5e-4", "1e-4") for row, of in rows.items()]  # fmt: skip
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
    place, values = ("", "double", "accuracy"), {"softmax": [10, 50, 31], "none": [10, 50, 31]}
    lines = [line(place, [11.1, 31.9], seeds="0 2")]
    lines += [line(("", row, "accuracy"), of) for row, of in values.items()]
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
    assert curve.measured.endswith("half, seg.: -3.0 -2.5 -2.5")


def test_a_claim_that_waits_tells_the_present_reason_and_a_measured_one_stays() -> None:
    claim, nowhere = BY_NAME["centered_fig2"], Evidence(Path("nowhere"))
    old = {"measured": "an earlier reason", "n": "", "verdict": str(Verdict.NOT_RUN)}
    assert "make table NAME=wsss_overnight" in findings(claim, nowhere, old)["measured"]
    known = old | {"n": "2 seeds", "verdict": str(Verdict.HOLDS)}
    assert findings(claim, nowhere, known) == known
