"""Claims of External Attention (Guo et al., 2021), from an author's note: the unit itself."""

from functools import partial

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.external import External, Norm, normalised
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.lab.backbones.t2t import T2TViT
from oversmoothing.lab.papers.claims.claim import Claim, Finding, every, partly
from oversmoothing.lab.papers.claims.evidence import Evidence

DRAWS, N, C, S = 20, 196, 64, 64
LARGE = 20.0  # factor on the features of one token
SECOND_HAND = {14: 30, 19: 55}  # millions, in the README of VisionPermutator
NORMS: tuple[Norm, ...] = ("softmax", "double")


def evenness(attention: Tensor) -> Tensor:
    """Entropy of every token's attention over ln S: 1 if it is even, 0 if on one slot."""
    share = attention / attention.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return torch.special.entr(share).sum(dim=-1) / torch.log(torch.tensor(float(S)))


def large_features(evidence: Evidence) -> Finding:
    """Claim: the double norm keeps the attention of a very large token even, softmax does not."""
    of_large: dict[str, list[float]] = {norm: [] for norm in NORMS}
    of_rest: dict[str, list[float]] = {norm: [] for norm in NORMS}
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        x, unit = torch.randn(N, C).double(), External(C, S).double()
        x[0] *= LARGE
        for norm in NORMS:
            even = evenness(normalised(unit.key(x), norm).detach())
            of_large[norm].append(float(even[0]))
            of_rest[norm].append(float(even[1:].mean()))
    mean = {norm: sum(values) / DRAWS for norm, values in of_large.items()}
    rest = {norm: sum(values) / DRAWS for norm, values in of_rest.items()}
    text = "; ".join(f"{n}: {mean[n]:.2f}, of the other tokens {rest[n]:.2f}" for n in NORMS)
    cases = [b > 2 * a for a, b in zip(of_large["softmax"], of_large["double"])]
    return Finding(partly(cases), f"evenness of its attention {text}", f"{DRAWS} draws")


def two_layers(evidence: Evidence) -> Finding:
    """Claim: the unit is two linear layers with a norm between, and heads share the memories."""
    errors, shared = [], []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        x, unit = torch.randn(N, C).double(), External(C, S).double()
        weights = (x @ unit.key.weight.mT).softmax(dim=0)
        weights = weights / weights.sum(dim=1, keepdim=True)
        errors.append(float((unit(x) - weights @ unit.value.weight.mT).detach().abs().max()))
    for heads in (1, 2, 4):
        unit_ = ExternalMultiHead(64, num_heads=heads, num_slots=S)
        memories = unit_.key.weight.numel() + unit_.value.weight.numel()
        shared.append(memories == 2 * S * 64 // heads)
    text = f"largest difference {max(errors):.0e}; one pair of memories for all heads"
    return Finding(every([max(errors) < 1e-6, *shared]), text, f"{DRAWS} draws")


def parameters(evidence: Evidence) -> Finding:
    """Claim: EAMLP-14 and 19 have as many parameters as listed."""
    counted = {}
    for number in SECOND_HAND:
        network = T2TViT([ExternalMultiHead], name=f"t2t_vit_{number}")
        both = nn.ModuleList([network, nn.Linear(network.dim, 1000)])
        counted[number] = sum(p.numel() for p in both.parameters()) / 1e6
    text = ", ".join(f"EAMLP-{k} {v:.2f} M ({SECOND_HAND[k]} M)" for k, v in counted.items())
    cases = [abs(v - SECOND_HAND[k]) < 1 for k, v in counted.items()]
    return Finding(every(cases), f"counted (listed): {text}", "2 networks")


_claim = partial(Claim, "External Attention", cheap=False)
CLAIMS = [
    _claim(
        "external_large",
        "Normalization",
        "With softmax alone a very large feature spoils the attention; the double norm avoids it.",
        f"Random tokens, one of them {LARGE:g} times as large; 1: even over the {S} slots, 0: on "
        "one (avoided: more than twice as even).",
        large_features,
    ),
    _claim(
        "external_layers",
        "External attention, multi-head",
        "It is two linear layers with a norm between them, and heads share the memories.",
        "The units against the formula in float64.",
        two_layers,
    ),
    _claim(
        "external_parameters",
        "EAMLP's table (a picture in the copy at hand)",
        "EAMLP-14 and 19 have 30 and 55 M parameters, as a later repository lists them.",
        "Counted, with the head of 1,000 classes (within 1 M).",
        parameters,
    ),
]
