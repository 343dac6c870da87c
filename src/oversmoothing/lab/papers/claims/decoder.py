"""Our questions about a pretrained decoder, SmolLM2-135M; examples/smollm2.py measures it."""

import math
from statistics import fmean

from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.rules import Finding, judged, share, span, tendency
from oversmoothing.lab.report.verdict import paired

SHORT, LONG = "32", "2048"  # tokens


def centered_cold(evidence: Evidence) -> Finding:
    """Claim: γ put into every block of trained weights raises the perplexity.

    Paired over the windows of text; what γ does in single blocks is told beside it.
    """
    name, command = "diagnose/smollm2_gamma.csv", "python examples/smollm2.py gamma --publish"
    nats: dict[tuple[str, str], dict[int, float]] = {}
    for line in evidence.csv(name, command):
        of = nats.setdefault((line["gamma"], line["block"]), {})
        of[int(line["window"])] = float(line["nats"])
    plain = nats.pop(("0", "none"))
    found = {place: paired(of, plain) for place, of in nats.items()}
    higher = dict(zip(found, judged(found.values())))
    cases = [higher[place] for place in found if place[1] == "all"]
    low, high = (_perplexity(nats[f"{sign}0.05", "all"]) for sign in ("-", ""))
    one = {
        γ: [higher[p] for p in found if p[0] == γ and p[1] != "all"] for γ in ("-1", "-0.2", "0.2")
    }
    lowest = min((_perplexity(of), place) for place, of in nats.items())
    each = ", ".join(f"γ = {γ} in {share(of, 'blocks')}" for γ, of in one.items())
    unsure = ", not significant" * (higher[lowest[1]] is None)
    text = (
        f"in all blocks higher in {share(cases, 'γ')}: perplexity {_perplexity(plain):.1f} without "
        f"γ, {low:.1f} and {high:.1f} at γ = ∓0.05, {_perplexity(nats['-0.5', 'all']):.0f} at γ = "
        f"-0.5; higher in one block: {each}; lowest {lowest[0]:.1f} (γ = {lowest[1][0]} in block "
        f"{lowest[1][1]}{unsure})"
    )
    return Finding(
        tendency(cases), text.replace("= -", "= −"), f"{len(plain)} windows of 256 tokens"
    )


def _perplexity(nats: dict[int, float]) -> float:
    return math.exp(fmean(nats.values()))


def rank_by_context(evidence: Evidence) -> Finding:
    """Claim: the stable rank after the last block falls as the context grows.

    Paired over the starts of the windows, with trained and with random weights; the first token of
    a trained decoder has nearly all of the energy, so it is left out in one case.
    """
    name, command = "diagnose/smollm2_lengths.csv", "python examples/smollm2.py lengths --publish"
    lines = evidence.csv(name, command)
    end = max(int(line["block"]) for line in lines)
    lines = [line for line in lines if int(line["block"]) == end]
    found, texts = [], []
    for weights, column, label in (
        ("random", "stable_rank", "random weights"),
        ("trained", "stable_rank", "trained"),
        ("trained", "stable_rank_rest", "trained, without the first token"),
    ):
        by_length: dict[str, dict[int, float]] = {}
        for line in lines:
            if line["weights"] == weights:
                of = by_length.setdefault(line["tokens"], {})
                of[int(line["start"])] = float(line[column])
        found.append(paired(by_length[SHORT], by_length[LONG]))
        ends = [span([fmean(by_length[n].values())], ".2f") for n in (SHORT, LONG)]
        texts.append(f"{label} {ends[0]} with 32 tokens, {ends[1]} with 2,048")
    cases = judged(found)
    text = f"it falls in {share(cases, 'cases')}: {'; '.join(texts)}"
    return Finding(tendency(cases), text, f"{found[0].n} texts")
