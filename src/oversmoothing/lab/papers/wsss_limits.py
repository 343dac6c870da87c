"""Measures a trained wsss run at several image sizes, on training and validation images.

oversmoothing figure limits
oversmoothing figure limits --run outputs/wsss-… --sizes 160 224 320 --images 200

The columns of ``wsss_limits.csv`` tell what limits the segmentation: data, if it is better on
training images; resolution, if it is better at another size; classification, if it is better once
the classes of the image are given.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.evaluate import checked, configured, measure
from oversmoothing.lab.launch.script import SEED, add_trust, whole
from oversmoothing.lab.launch.trained import TrainedRun
from oversmoothing.lab.papers import figure_parser

RUN = ["experiment=wsss_voc_overnight", "task.evaluation.boundary=true", "aggregator=none"]
PLAIN = ("ms_scales=[]", "crf=null", "backgrounds=[]", "boundary=false", "known=true")
STAGES = ("cam", "pseudo", "seg", "seg_known")
Row = dict[str, float | int | str]


def main(argv: list[str]) -> int:
    """Writes ``wsss_limits.csv``."""
    parser = figure_parser(__doc__, pdf=False)
    parser.add_argument("--run", help="default: γ = 0 of the table wsss_overnight")
    parser.add_argument("--seed", type=SEED, default=0)
    parser.add_argument("--sizes", type=whole(16), nargs="+", default=[160, 224, 320])
    parser.add_argument("--images", type=whole(), default=200, help="of each split")
    parser.add_argument("--out", type=Path, help="default: wsss_limits.csv")
    add_trust(parser)
    options = parser.parse_args(argv)
    folder = options.run or trained.of_command(RUN, options.seed)
    run = trained.load(folder, options.seed, trust=options.trust)
    found = [row for size in options.sizes for row in rows(run, size, options.images)]
    out = options.out or options.target / "wsss_limits.csv"
    print(write_csv(out, found[0], (row.values() for row in found)))
    return 0


def rows(run: TrainedRun, size: int, images: int) -> Iterator[Row]:
    """Measures the training images and the validation images at one size.

    Yields:
        A row for each split: mean IoU in percent over the labels that the run calls common, or over
        all labels, empty if the run has no such stage, and the percentage of pixels that pseudo
        labels decide.
    """
    for split in ("train", "val"):
        config = configured(run.config, settings(size, images))
        for key in ("splits", "ms_splits"):
            config.task.evaluation[key] = [split]
        task = checked(config, run.network)
        _, content = measure(run.weights, run.seed, run.network, run.data, task)
        found = content["seeds"][str(run.seed)]
        kind = "common_miou" if task.evaluation.common else "miou"
        row: Row = {"run": run.folder.name, "seed": run.seed, "split": split, "size": size}
        row |= {"images": min(images, len(getattr(run.data, split)))}
        row |= {stage: found.get(f"{split}_{stage}_{kind}", "") for stage in STAGES}
        yield row | {"coverage": found[f"{split}_pseudo_coverage"]}


def settings(size: int, images: int) -> Sequence[str]:
    """Returns overrides for an evaluation at one size, without multi-scale, CRF and curves."""
    words = (f"size={size}", f"limit={images}", *PLAIN)
    return [f"evaluation.{word}" for word in words]
