"""A training loop with timm: a ViT of 6 blocks on scikit-learn's digits, plain and with a method.

python examples/timm_digits.py      # five minutes on one core: 3 seeds of each

There are 1,437 images of 8×8 pixels for training and 360 for validation, enlarged to 32×32. Patches
of 8 pixels give 16 tokens and the class token. After every epoch the accuracy is measured, and the
cosine of the tokens of 64 validation images after the last block.

Needs `pip install '.[digits]'`.
"""

import math
import statistics

import panels
import timm
import torch
import torch.nn.functional as F
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

import oversmoothing as osm
from oversmoothing.lab.data.digits import load
from oversmoothing.lab.launch.script import run_script

MEASURES = ("accuracy in %", "cosine after the last block")
METHODS = {
    "plain": None,
    "centered, γ = −0.5": ("centered", {"gamma": -0.5}),
}


def tensors(data, ids) -> tuple[Tensor, Tensor]:
    """Returns images scaled to [-1, 1], (n, 3, 32, 32), and classes (n,)."""
    images = torch.stack([pil_to_tensor(data.pil_image(id)) for id in ids])
    return images / 127.5 - 1, torch.tensor([data.target(id) for id in ids])


def train(method: str, seed: int, epochs: int) -> list[tuple[float, float]]:
    """Returns accuracy in percent and mean cosine after every epoch."""
    data = load()
    images, targets = tensors(data, data.train)
    held_out, truth = tensors(data, data.val)
    torch.manual_seed(seed)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=64,
                            depth=6, num_heads=2, num_classes=10)  # fmt: skip
    if METHODS[method]:
        name, options = METHODS[method]
        osm.apply(vit, name, **options)
    optimizer = create_optimizer_v2(vit, "adamw", lr=1e-3, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=epochs, warmup_t=1, warmup_lr_init=1e-4)
    found = []
    for epoch in range(epochs):
        scheduler.step(epoch)
        vit.train()
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(vit(images[batch]), targets[batch]).backward()
            optimizer.step()
        vit.eval()
        with torch.no_grad():
            right = (vit(held_out).argmax(1) == truth).float().mean().item()
        found.append((100 * right, osm.diagnose(vit, held_out[:64])["cosine"][-1]))
    return found


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=16)
    options = parser.parse_args()
    rows: list[tuple] = []
    for method in METHODS:
        runs = [train(method, seed, options.epochs) for seed in options.seeds]
        for seed, run in zip(options.seeds, runs):
            rows += [(method, seed, i + 1, *values) for i, values in enumerate(run)]
        for i, what in enumerate(MEASURES):
            last = [run[-1][i] for run in runs]
            mean, spread = statistics.mean(last), statistics.stdev(last) if last[1:] else math.nan
            print(f"{method}: {what} {mean:.3f} ± {spread:.3f} (n = {len(last)})", flush=True)
    panels.write("timm_digits", ("method", "seed", "epoch", "accuracy", "cosine"), rows)
    draw(rows)


def draw(rows: list[tuple]) -> None:
    curves = {what: panels.means(rows, 2, 3 + i) for i, what in enumerate(MEASURES)}
    panels.draw("timm_digits", curves, f"epoch (mean of {len({row[1] for row in rows})} seeds)")


if __name__ == "__main__":
    run_script(main)
