"""The arithmetic behind verdicts, against other formulas for the same."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from made_up import measured
from made_up_results import five, line, write

from oversmoothing.lab.papers.claims import centered_theory, contranorm_depth, contranorm_theory
from oversmoothing.lab.papers.claims.centered_graphs import _margin
from oversmoothing.lab.papers.claims.centered_tuned import _grows
from oversmoothing.lab.papers.claims.claim import Verdict
from oversmoothing.lab.papers.claims.contranorm_graphs import against_norms
from oversmoothing.lab.papers.claims.contranorm_readings import near
from oversmoothing.lab.papers.claims.evidence import Cells, Evidence
from oversmoothing.lab.report.verdict import differ


def test_near_is_within_a_point_or_the_noise_of_the_mean() -> None:
    level, noisy = measured(70.0, 70.0), measured(66.0, 70.0, 74.0)  # 2·4/√3 = 4.62
    assert near(level, 70.9) and not near(level, 71.1)
    assert near(noisy, 74.5) and not near(noisy, 74.7)


def test_the_margin_adds_the_variances_of_both_means() -> None:
    assert _margin(3.0, measured(48.0, 52.0)) == pytest.approx(2 * math.sqrt(9 / 5 + 8 / 2))
    assert _margin(0.1, measured(50.0)) == 1.0


def test_a_gap_that_had_no_noise_grows_by_welchs_test_of_the_gap_after() -> None:
    flat, generator = measured(60.0, 60.0), torch.Generator().manual_seed(0)
    for _ in range(300):
        a = measured(*(2 + torch.randn(3, generator=generator)).tolist())
        b = measured(*torch.randn(4, generator=generator).tolist())
        assert _grows((flat, flat), (a, b), 1) is ((a.mean > b.mean) if differ(a, b) else None)


def test_the_fewest_seeds_of_a_cell_are_told() -> None:
    cells = Cells("one", {("", "a", ""): measured(1.0, 2.0), ("", "b", ""): measured(1.0)})
    assert cells.seeds == "1 seed per cell"


@pytest.mark.parametrize(("pairnorm", "verdict"), [(55, "holds"), (60, "not decided")])
def test_better_than_two_norms_is_better_than_each(
    tmp_path: Path, pairnorm: float, verdict: str
) -> None:
    means = {"contranorm": 60, "pairnorm": pairnorm, "layernorm": 50}
    cells = [line(("Cora", row, "L=8"), five(mean)) for row, mean in means.items()]
    write(tmp_path, "table5", cells)
    assert against_norms(Evidence(tmp_path)).verdict == verdict


def test_attention_maps_are_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (6, 4), (4, 4), (4, 4)
    x, q, k = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
    expected = F.scaled_dot_product_attention(x @ q, x @ k, torch.eye(6).double())
    torch.testing.assert_close(centered_theory.attention(x, q, k), expected)


def test_the_bound_of_proposition_1_is_the_minimum_over_unit_vectors() -> None:
    """2 (u − ū)·(u − Āu), on a grid."""
    *_, (H, _) = contranorm_theory.draws(3)
    H = H[:3]  # its P has a negative eigenvalue
    angles = torch.linspace(0, math.pi, 600, dtype=torch.float64)
    a, b = torch.meshgrid(angles, angles, indexing="ij")
    u = torch.stack([a.sin() * b.cos(), a.sin() * b.sin(), a.cos()], -1).flatten(0, 1)
    moved = u - u @ contranorm_theory.softmax_map(H).mT
    lowest = float(2 * ((u - u.mean(-1, keepdim=True)) * moved).sum(-1).min())
    assert contranorm_theory.bounds(H) == pytest.approx(lowest, abs=1e-3) and lowest < -0.02


RECORDED = ("effective_rank", "cosine")


def networks(folder: Path, recorded=RECORDED, **ranks: list[list[float]]) -> Evidence:
    """Effective rank after each of 12 layers, by aggregator and seed; DeiT-Ti's falls."""
    folder.mkdir()
    config = {"trainer": {"lr": 1e-4}}
    lines = {table: "" for table in (*contranorm_depth.TABLES, "cls_pretrained")}
    for name, of in (ranks | {"pretrained": [[12 - n for n in range(12)]]}).items():
        parts = config | {"aggregator": {"_part_": f"aggregator/{name}"}}
        layers = [dict.fromkeys(recorded, seed) for seed in of]
        seeds = {n: {"layers_after": of, "layers_before": of} for n, of in enumerate(layers)}
        lines["text_rates"] += json.dumps({"id": name, "config": parts, "seeds": seeds}) + "\n"
    none = config | {"aggregator": {"_part_": "aggregator/none"}}
    lines["cls_pretrained"] = json.dumps({"id": "deit", "config": none, "seeds": seeds})
    for table, text in lines.items():
        (folder / f"{table}.jsonl").write_text(text)
    return Evidence(folder)


def test_a_rank_falls_where_the_mean_over_seeds_falls_nearly_always(tmp_path: Path) -> None:
    down = [float(20 - n) for n in range(12)]
    swapped = [*down[:6], *reversed(down[6:])]  # ρ = -0.76
    once = [down[1], down[0], *down[2:]]  # ρ = -0.99
    verdicts = {
        "falls": [once, down, down],
        "rises": [swapped],
        "rises in the mean": [down[::-1], [d / 2 for d in down]],
    }
    expected = [Verdict.HOLDS, Verdict.IN_PART, Verdict.IN_PART]
    for (name, seeds), verdict in zip(verdicts.items(), expected):
        assert contranorm_depth.falling(networks(tmp_path / name, none=seeds)).verdict is verdict


@pytest.mark.parametrize(("last", "verdict"), [(9.9, Verdict.CONTRADICTED), (10.1, Verdict.HOLDS)])
def test_half_the_first_rank_is_a_collapse_even_where_it_is_higher(
    tmp_path: Path, last: float, verdict: Verdict
) -> None:
    ours = [[20.0] * 11 + [last + shift] for shift in (-0.05, 0.0, 0.05)]
    base = [[20.0] * 11 + [5.0 + shift] for shift in (-0.05, 0.01, 0.05)]
    evidence = networks(tmp_path / "ranks", contranorm=ours, none=base)
    assert contranorm_depth.collapse(evidence).verdict is verdict


def test_the_variance_counts_where_it_was_recorded(tmp_path: Path) -> None:
    of = {"contranorm": [[9.0] * 12] * 2, "none": [[5.0] * 12] * 2}
    without = contranorm_depth.deep_bert(networks(tmp_path / "without", **of))
    assert without.measured.endswith("against 5.00 ± 0.00 (n = 2); variance: not recorded")
    both = contranorm_depth.deep_bert(
        networks(tmp_path / "with", (*RECORDED, "token_variance"), **of)
    )
    assert both.measured.count("against") == 2 and "variance: BERT, 12 layers" in both.measured
