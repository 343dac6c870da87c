"""A step of AdamW as the trainers take it, fused, beside torch's other forms.

    python benchmarks/optimizer.py
    python benchmarks/optimizer.py --device cuda

The parameters of the small BERT of experiment=glue_sst2_small with 6 layers, whose embeddings are
most of them. Exit code 1 when the forms disagree after the steps that were timed.
"""

import argparse
import statistics
import sys
import time

import torch
from torch import Tensor

from oversmoothing.store.environment import device

FORMS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "one by one": {"foreach": False}}
VOCABULARY, POSITIONS, LAYERS, C, FFN = 30522, 514, 6, 128, 512
TOLERANCE = 1e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    place = device(options.device)
    torch.manual_seed(0)
    start = [torch.randn(shape, device=place) for shape in shapes()]
    weights = {form: [w.clone().requires_grad_() for w in start] for form in FORMS}
    steps = {form: torch.optim.AdamW(weights[form], lr=1e-4, **FORMS[form]) for form in FORMS}
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(options.rounds):
        gradients = [torch.randn_like(w) for w in start]
        for form in FORMS:
            for weight, gradient in zip(weights[form], gradients):
                weight.grad = gradient.clone()
            seconds[form].append(timed(steps[form], place))
    ours = statistics.median(seconds["fused"])
    for form, times in seconds.items():
        other = statistics.median(times)
        off = largest(weights[form], weights["fused"])
        print(f"{form:>10}: {1e3 * other:7.2f} ms, {other / ours:5.2f}×, off by {off:.1e}")
    return int(any(largest(found, weights["fused"]) > TOLERANCE for found in weights.values()))


def shapes() -> list[tuple[int, ...]]:
    layer = [(C, C)] * 4 + [(FFN, C), (C, FFN), (FFN,)] + [(C,)] * 9
    return [(VOCABULARY, C), (POSITIONS, C), *(layer * LAYERS)]


def timed(optimizer: torch.optim.Optimizer, place: torch.device) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.step()
    if place.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def largest(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(a, b))


if __name__ == "__main__":
    sys.exit(main())
