"""The tokens of DeiT-Ti with ImageNet weights, plain and with a method put into every block.

python examples/diagnose_deit.py      # two minutes on one core
python examples/diagnose_deit.py --images 8 --models plain

It reads 64 validation images of $DATA_ROOT/VOC2012 (a subset of PASCAL VOC) and the weights in
$DATA_ROOT/weights/deit_tiny_patch16_224.timm.pth; without that file timm downloads the weights.
Each image is resized to 256 pixels (bicubic) and cropped to 224, as `train.py experiment=cls_eval`
does, whose numbers are in results/cls_pretrained.jsonl.
"""

from collections.abc import Callable
from pathlib import Path

import panels
import timm
import torch
from torch import Tensor

import oversmoothing as osm
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.data.voc import load
from oversmoothing.lab.launch.script import run_script

WEIGHTS = Path(panels.ROOT) / "weights/deit_tiny_patch16_224.timm.pth"
MODELS: dict[str, Callable] = {
    "plain": lambda vit: vit,
    "γ = −0.5": lambda vit: osm.apply(vit, "centered", gamma=-0.5, blocks="all"),
    "γ = −1": lambda vit: osm.apply(vit, "centered", gamma=-1, blocks="all"),
    "ContraNorm": lambda vit: osm.apply(
        vit, "contranorm", scale=0.2, identity=False, mask_neighbours=False, layernorm=True,
        blocks="all", where="norm2",
    ),
}  # fmt: skip
METRICS = ("cosine", "effective_rank", "mean_share")


def images(number: int) -> Tensor:
    """Returns normalised validation images, (number, 3, 224, 224)."""
    data = load(panels.ROOT, train="train_subset", val="val_subset", cache="outputs/cache")
    prepared = timm.data.create_transform(224, interpolation="bicubic", crop_pct=224 / 256)
    return torch.stack([prepared(data.pil_image(id)) for id in evenly_spaced(data.val, number)])


def deit() -> torch.nn.Module:
    vit = timm.create_model("deit_tiny_patch16_224", pretrained=not WEIGHTS.exists())
    if WEIGHTS.exists():
        vit.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return vit


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    options = parser.parse_args()
    batches = images(options.images).split(8)
    rows: list[tuple] = []
    for label in options.models:
        reference = "random" if label == "plain" else None
        report = osm.diagnose(MODELS[label](deit()), batches=batches, reference=reference)
        print(label, report, sep="\n")
        both = [(label, report), ("plain, random", report.reference)]
        for name, found in both[: 2 if reference else 1]:
            rows += [
                (name, i + 1, *(found[metric][i] for metric in METRICS))
                for i in range(len(found.layers))
            ]
    panels.write("deit", ("model", "block", *METRICS), rows)
    draw(rows)


def draw(rows: list[tuple]) -> None:
    curves = {
        metric.replace("_", " "): panels.means(rows, 1, 2 + i) for i, metric in enumerate(METRICS)
    }
    panels.draw("deit", curves, "block", dashed=["plain, random"])


if __name__ == "__main__":
    run_script(main)
