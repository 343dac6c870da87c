"""HEMNet's Figure 4: attention maps and reconstructions by iteration on a validation image.

    python scripts/hem_fig4.py
    python scripts/hem_fig4.py 2007_000042 --run outputs/segmentation-voc_subset-em-…

Without an id it is the first image of the validation list with three labels or more. The image is
scaled as in the run's single-scale evaluation.
"""

import argparse
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.voc_labels import IGNORE
from oversmoothing.errors import InputError
from oversmoothing.launch import trained
from oversmoothing.launch.script import run_script
from oversmoothing.papers.em_maps import figure4, maps_of
from oversmoothing.store.files import writing
from oversmoothing.tasks.wsss.pictures import save

STEM = Path(__file__).parents[1] / "results/figures/hem_fig4"
RUN = ["experiment=seg_voc_subset", "aggregator=hem"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("image", nargs="?", help="id of the run's data set")
    parser.add_argument("--run", help="of task=segmentation with EM; default: the subset's, HEM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=3, help="of bases and of channels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--stem", type=Path, default=STEM, help="of the files .png and .pdf")
    options = parser.parse_args()
    folder = options.run or trained.of_command(RUN, options.seed)
    run = trained.load(folder, options.seed, options.device, tasks=("segmentation",))
    id = options.image or _several_labels(run.data)
    if id not in run.data.image_files:
        known = f"expected ids such as {run.data.val[0]}"
        raise InputError(f"{id}: no image of {run.data.name}; {known}")
    image, truth = _scaled(run.data, id, run.config.task.evaluation.size)
    place = next(run.network.parameters()).device
    maps = maps_of(run.network, image.to(place), options.number)
    with writing(options.stem):
        options.stem.parent.mkdir(parents=True, exist_ok=True)
    pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
    labels = None if truth is None else truth.numpy()
    print(*save(figure4(pixels, labels, maps), options.stem), f"image: {id}", sep="\n")
    for t, (entropy, explained) in enumerate(zip(maps.entropy, maps.explained), start=1):
        print(f"iteration {t}: entropy of γ {entropy:.3f} of ln K, X̃ explains {explained:.1%} of X")
    return 0


def _several_labels(data: ImageSet) -> str:
    """The first validation image with three labels, or else the first."""
    for id in data.val:
        if id in data.mask_files and len(set(data.mask(id).unique().tolist()) - {IGNORE}) >= 3:
            return id
    return data.val[0]


def _scaled(data: ImageSet, id: str, longer: int | None) -> tuple[Tensor, Tensor | None]:
    """Shapes: (3, H, W) in [0, 1], (H, W) uint8."""
    image = data.image(id).float() / 255
    truth = data.mask(id) if id in data.mask_files else None
    factor = longer / max(image.shape[1:]) if longer else 1.0
    size = [max(1, int(side * factor + 1e-6)) for side in image.shape[1:]]
    image = F.interpolate(image[None], size, mode="bilinear", align_corners=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return image, truth


if __name__ == "__main__":
    run_script(main)
