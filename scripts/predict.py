"""What a trained network makes of images: CAMs, refined label, segmentation mask.

python scripts/predict.py photo.jpg --run outputs/wsss-voc_subset-centered-… --labels cat,person
python scripts/predict.py 2007_000042 --run …centered… --compare …baseline… --crf
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing import trained
from oversmoothing.check.names import meant
from oversmoothing.data.images import read_image, read_mask, write_mask
from oversmoothing.errors import InputError
from oversmoothing.files import writing
from oversmoothing.report.wsss_figures import prediction, require_same_classes
from oversmoothing.script import run_script
from oversmoothing.trained import Trained
from oversmoothing.wsss.crf import load_pydensecrf
from oversmoothing.wsss.pictures import save


def main() -> int:
    options = _options()
    if options.crf:
        load_pydensecrf()
    run = trained.load(options.run, options.seed, options.device)
    other = options.compare and trained.load(options.compare, options.seed, options.device)
    if other:
        require_same_classes(run, other)
    wanted = _label(options.labels, run.classes)
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for word in options.images:
        try:
            print(*_predict(word, run, other, wanted, options), sep="\n", flush=True)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("images", nargs="+", help="files, or ids of the run's data set")
    parser.add_argument("--run", required=True, help="folder, name or id of a run of task=wsss")
    parser.add_argument("--seed", type=int, help="default: the first that was trained")
    parser.add_argument("--compare", help="another run, whose CAMs are shown too")
    parser.add_argument("--labels", help="cat,person; default: the image's, or what is found")
    parser.add_argument("--truth", type=Path, help="folder of masks <image>.png")
    parser.add_argument("--crf", action="store_true", help="refine the mask by a dense CRF")
    parser.add_argument("--longest", type=int, default=512, help="larger images are shrunk to it")
    parser.add_argument("--out", type=Path, default=Path("outputs/predictions"))
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def _label(names: str | None, classes: tuple[str, ...]) -> Tensor | None:
    """Image-level label (K,) of comma-separated names."""
    if names is None:
        return None
    label = torch.zeros(len(classes))
    for name in names.split(","):
        if name.strip() not in classes:
            raise InputError(f"--labels: no class {name.strip()!r}; {meant(name, classes)}")
        label[classes.index(name.strip())] = 1
    return label


def _predict(
    word: str,
    run: Trained,
    other: Trained | None,
    wanted: Tensor | None,
    options: argparse.Namespace,
) -> list[Path]:
    """Files written for one image."""
    name, image, label, truth = _input(word, run, options)
    image, truth = _shrunk(image, truth, options.longest)
    look = run.viewer(options.crf).look(name, image, label if wanted is None else wanted, truth)
    other_look = other and other.viewer().look(name, image, _present(look.labels, run.classes))
    paths = save(prediction(look, run, other_look, other), options.out / name)
    if look.mask is None:
        return paths
    path = options.out / f"{name}-mask.png"
    with writing(path):
        write_mask(path, look.mask)
    return [*paths, path]


def _input(
    word: str, run: Trained, options: argparse.Namespace
) -> tuple[str, Tensor, Tensor | None, Tensor | None]:
    """Name, image, label and truth, the latter two where the run's data have them."""
    path = Path(word)
    name = path.stem
    try:
        data = run.data
    except InputError:
        data = None  # the images that it was trained on need not be here
    known = data is not None and name in data.image_files
    if not path.exists() and known and name == word:
        image = data.image(name)
    elif not path.exists():
        raise InputError(f"{word}: no such image; expected a file, or an id of the run's data")
    else:
        image, known = read_image(path), known and path.samefile(data.image_files[name])
    truth = data.mask(name) if known and name in data.mask_files else None
    if options.truth:
        truth = read_mask(options.truth / f"{name}.png")
    if truth is not None and truth.shape != image.shape[1:]:
        raise InputError(f"{options.truth / name}.png: expected a mask as large as {word}")
    label = data.label(name) if known and name in data.present else None
    return name, image, label, truth


def _shrunk(image: Tensor, truth: Tensor | None, longest: int) -> tuple[Tensor, Tensor | None]:
    """Both with sides of at most ``longest``."""
    factor = longest / max(image.shape[1:])
    if factor >= 1:
        return image, truth
    size = [max(1, round(side * factor)) for side in image.shape[1:]]
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return small.round().clamp(0, 255).byte(), truth


def _present(labels: tuple[int, ...], classes: tuple[str, ...]) -> Tensor:
    label = torch.zeros(len(classes))
    label[[value - 1 for value in labels]] = 1
    return label


if __name__ == "__main__":
    run_script(main)
