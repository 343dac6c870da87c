"""Claims about cost: operations counted here, times from the benchmarks' record."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from oversmoothing.aggregators.base import After
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.lab.papers.claims.claim import Claim, Finding, every
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError

UNITS = {"em": "EMANet", "hem": "HEM"}
LINEAR = 1.1  # largest exponent that counts as linear, as in the benchmarks
TOKENS, CHANNELS = (512, 1024, 2048, 4096), (32, 64, 128, 256)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of a line through the logarithms: k for costs that grow as sizes to the k."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def operations(layer: After, n: int, d: int) -> int:
    """FLOPs of a forward pass over n tokens of d channels."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.randn(1, n, d, generator=torch.Generator().manual_seed(0)))
    return counter.get_total_flops()


def contranorms(evidence: Evidence) -> Finding:
    """Claim: ContraNorm takes O(n²d) operations and ContraNorm-D O(nd²)."""
    texts, cases = [], []
    expected = {"ContraNorm": (2, 1), "ContraNorm-D": (1, 2)}
    for name, powers in expected.items():
        kind = partial(ContraNorm, dual=True) if name == "ContraNorm" else ContraNormD
        by_n = [operations(kind(64), n, 64) for n in TOKENS]
        by_d = [operations(kind(d), 1024, d) for d in CHANNELS]
        found = exponent(TOKENS, by_n), exponent(CHANNELS, by_d)
        cases += [math.isclose(a, b, abs_tol=0.05) for a, b in zip(found, powers)]
        texts.append(f"{name} n^{found[0]:.2f} d^{found[1]:.2f}")
    return Finding(every(cases), f"operations grow as {', '.join(texts)}", "counted, 8 sizes each")


def bench(evidence: Evidence, work: str, measure: str) -> dict[str, Any]:
    """A row of the benchmark of EM and external attention.

    Raises:
        NotRecordedError: there is none.
    """
    rows = evidence.json("bench").get("em", [])
    found = [row for row in rows if row["work"].startswith(work) and row["measure"] == measure]
    if not found:
        raise NotRecordedError(f"{work}, {measure}: not measured; `make bench` does it")
    return found[0]


def linear(evidence: Evidence, units: tuple[str, ...]) -> Finding:
    """Claim: the time of these units is linear in the number of tokens."""
    found = {unit: bench(evidence, f"{unit},", "exponent of ms") for unit in units}
    values = {unit: row["ours"]["median"] for unit, row in found.items()}
    text = ", ".join(f"{UNITS.get(unit, unit)} {value:.2f}" for unit, value in values.items())
    text = f"exponent of time over the number of tokens: {text}"
    return Finding(every(v <= LINEAR for v in values.values()), text, "1,024 to 16,384 tokens")


def cheaper(evidence: Evidence) -> Finding:
    """Claim: EM attention takes less time than self-attention."""
    attention = bench(evidence, "attention, 4,096 tokens", "ms")["ours"]["median"]
    units = {unit: bench(evidence, f"{unit}, 16,384 tokens", "ms") for unit in ("em", "hem")}
    shares = {unit: row["ours"]["median"] / attention for unit, row in units.items()}
    text = ", ".join(f"{UNITS[unit]} {100 * share:.0f} %" for unit, share in shares.items())
    text = f"time for 16,384 tokens, as a share of fused self-attention's for only 4,096: {text}"
    return Finding(
        every(share < 1 for share in shares.values()), text, "2 rounds, forward, backward"
    )


_bench = "python benchmarks/em.py"
CLAIMS = [
    Claim(
        "ContraNorm",
        "contranorm_cost",
        "3.3",
        "ContraNorm takes O(n²d), ContraNorm-D O(nd²).",
        "FLOPs counted over n at d = 64 and over d at n = 1,024.",
        contranorms,
        cheap=False,
    ),
    Claim(
        "HEMNet",
        "hem_linear",
        "3.2, 4.2",
        "Unrolled EM and HEM take O(NK): linear in the number of tokens.",
        f"Times of the benchmark (up to {LINEAR:g} counts as linear).",
        partial(linear, units=("em", "hem")),
        command=_bench,
    ),
    Claim(
        "HEMNet",
        "hem_cheaper",
        "Introduction",
        "EM attention is cheaper than self-attention.",
        "Times of the benchmark, 512 channels.",
        cheaper,
        command=_bench,
    ),
    Claim(
        "External Attention",
        "external_linear",
        "External attention",
        "It is linear in the number of tokens.",
        f"Times of the benchmark (up to {LINEAR:g} counts as linear).",
        partial(linear, units=("external", "external_multihead")),
        command=_bench,
    ),
]
