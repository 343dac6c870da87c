"""Compares PAR with ToCo's own module.

    python benchmarks/par.py
    python benchmarks/par.py --toco PATH                # a checkout of github.com/rulixiang/ToCo
    python benchmarks/par.py --device cuda --batch 8 --rounds 20

Images have half the side of the crop, as in training. There are a few maps per image, as for pseudo
labels (background and present classes, for two background scores), or all 21.

On a busy machine set OMP_NUM_THREADS=1. Exit code 1 when the two modules disagree.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from record import Row, parser_of, row, save
from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.tasks.wsss.labels import PAR

DILATIONS = (1, 2, 4, 8, 12, 24)
TOLERANCE = 1e-5


def modules(options: argparse.Namespace) -> dict[str, nn.Module]:
    """Returns our module, and ToCo's if there is a checkout."""
    chosen = {"ours": PAR(DILATIONS, toco_compat=True)}
    if options.toco:
        chosen["ToCo"] = _theirs(Path(options.toco) / "model" / "PAR.py")
    return {name: module.to(device(options.device)) for name, module in chosen.items()}


def _theirs(path: Path) -> nn.Module:
    if not path.is_file():
        raise InputError(f"--toco: no {path}; expected a checkout of github.com/rulixiang/ToCo")
    spec = importlib.util.spec_from_file_location("toco_par", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAR(num_iter=10, dilations=list(DILATIONS))


def inputs(options: argparse.Namespace, K: int) -> tuple[Tensor, Tensor]:
    """Draws smooth colours with some noise, and soft class maps."""
    B, S = options.batch, options.side
    torch.manual_seed(0)
    images = F.interpolate(torch.rand(B, 3, S // 8, S // 8), (S, S), mode="bilinear")
    images = (0.95 * images + 0.05 * torch.rand(B, 3, S, S)).to(device(options.device))
    masks = F.interpolate(3 * torch.randn(B, K, S // 8, S // 8), (S, S), mode="bilinear")
    return images, masks.softmax(dim=1).to(device(options.device))


@torch.no_grad()
def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    forms = modules(options)
    rows, gap = [], 0.0
    for K in options.maps:
        images, masks = inputs(options, K)
        rows += rows_of(forms, images, masks, options.rounds)
        ours, *others = [form(images, masks) for form in forms.values()]
        gap = max([gap, *((ours - other).abs().max().item() for other in others)])
    save(rows)
    print(f"largest difference of masks in [0, 1]: {gap:.1e}")
    return int(not gap <= TOLERANCE)


def rows_of(forms: dict[str, nn.Module], images: Tensor, masks: Tensor, rounds: int) -> list[Row]:
    """Measures time and memory for a number of maps."""
    B, K, H, W = masks.shape
    steps = {name: lambda form=form: form(images, masks) for name, form in forms.items()}
    ms = scaled(interleaved(steps, rounds, clock(images.device)), 1e3)
    mb = {name: [peak_megabytes("--peak-of", name, str(K))] for name in forms}
    rows = []
    for unit, found in (("ms", ms), ("MB", mb)):
        peer = {"peer": "ToCo", "theirs": found["ToCo"]} if "ToCo" in found else {}
        rows.append(row(f"PAR, {B} × {K} maps of {H} × {W}", unit, found["ours"], **peer))
    return rows


def peak(options: argparse.Namespace) -> int:
    """Measures the peak memory of one module in bytes, above its inputs."""
    name, K = options.peak_of
    form = modules(options)[name]
    form(
        *inputs(argparse.Namespace(**{**vars(options), "batch": 1, "side": 8}), 1)
    )  # loads libraries
    images, masks = inputs(options, int(K))
    return peak_bytes(lambda: form(images, masks), images.device)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--toco", help="a checkout of ToCo, whose module is loaded from there")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--side", type=int, default=224, help="of the image, half the crop's")
    parser.add_argument("--maps", type=int, nargs="+", default=[4, 21], help="per image")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # module, maps
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
