"""Compares a step of fused AdamW, as in the trainers, with torch's other implementations.

    python benchmarks/optimizer.py
    python benchmarks/optimizer.py --device cuda

The parameters are those of the small BERT of experiment=glue_sst2_small with 6 layers, most of them
embeddings. Exit code 1 if the implementations disagree after the timed steps.
"""

import torch
from measure import clock, wait
from record import parser_of, row, save
from torch import Tensor

from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

FORMS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "one by one": {"foreach": False}}
VOCABULARY, POSITIONS, LAYERS, C, FFN = 30522, 514, 6, 128, 512
TOLERANCE = 1e-5


def main() -> int:
    parser = parser_of(__doc__)
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
    gaps = [largest(found, weights["fused"]) for found in weights.values()]
    ms = {form: [1e3 * value for value in values] for form, values in seconds.items()}
    others = [form for form in FORMS if form != "fused"]
    work = "step of AdamW, fused, BERT of 6 layers"
    rows = [row(work, "ms", ms["fused"], peer=form, theirs=ms[form]) for form in others]
    save(rows)
    print(f"largest difference of weights: {max(gaps):.1e}")
    return int(max(gaps) > TOLERANCE)


def shapes() -> list[tuple[int, ...]]:
    layer = [(C, C)] * 4 + [(FFN, C), (C, FFN), (FFN,)] + [(C,)] * 9
    return [(VOCABULARY, C), (POSITIONS, C), *(layer * LAYERS)]


def timed(optimizer: torch.optim.Optimizer, place: torch.device) -> float:
    now = clock(place)
    wait()
    start = now()
    optimizer.step()
    wait()
    return now() - start


def largest(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(a, b))


if __name__ == "__main__":
    run_script(main)
