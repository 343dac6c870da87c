"""Measures a trained network with other evaluation settings, or writes VOC's submission.

python scripts/evaluate.py --run wsss-voc-centered-… evaluation.ms_scales=[0.75,1,1.25]
python scripts/evaluate.py --run … --seed 0 1 --split train evaluation.crf=null evaluation.limit=50
python scripts/evaluate.py --run … evaluation.crf={}          # with ToCo's CRF
python scripts/evaluate.py --run … --split test --export submission
python scripts/evaluate.py --run FOLDER                       # that scripts/export.py wrote
"""

import statistics
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from functools import partial
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.data.voc import unlabelled
from oversmoothing.lab.launch import loading
from oversmoothing.lab.launch.loading import TrainedRun
from oversmoothing.lab.launch.reevaluate import checked, configured, measure
from oversmoothing.lab.launch.script import SEED, add_trust
from oversmoothing.lab.store.weights import weights_of
from oversmoothing.lab.tasks.wsss.export import export
from oversmoothing.lab.tasks.wsss.task import WSSS


def main() -> int:
    options, words = _options(sys.argv[1:])
    if options.split == "train" and options.export:
        raise InputError("--export: the server takes test or val; choose with --split")
    if options.split == "test" and not options.export:
        raise InputError("--split test: its masks are not public, so it cannot be measured; give "
                         "--export FOLDER")  # fmt: skip
    load = partial(loading.load, on=options.device, trust=options.trust)
    run = load(options.run, (options.seed or [None])[0])
    trained = sorted(weights_of(run.folder, run.config))
    seeds = [*dict.fromkeys(options.seed or trained)]
    for seed in seeds:  # fail before any measurement
        if seed not in trained:
            known = ", ".join(map(str, trained))
            raise InputError(f"{run.folder}: no weights of seed {seed}; known seeds: {known}")
    config = configured(run.config, words)
    if options.split != "test":
        for key in ("splits", "ms_splits"):
            config.task.evaluation[key] = [options.split]
    task = checked(config, run.network)
    data = unlabelled(config.data) if options.split == "test" else build(config.data)
    for seed in seeds:
        each = run if seed == run.seed else load(run.folder, seed)
        if options.export:
            folder = options.export / f"seed{seed}" if len(seeds) > 1 else options.export
            print(_export(each, data, task, folder, options.split), flush=True)
        else:
            path, content = measure(each.weights, seed, each.network, data, task)
    if not options.export:
        print(_table(content["seeds"], seeds, options.split), path, sep="\n\n")
    return 0


def _options(argv: list[str]) -> tuple[Namespace, list[str]]:
    """Returns the options, and the words that set keys."""
    words = [
        word
        for flag, word in zip(["", *argv], argv)
        if "=" in word and not word.startswith("-") and flag not in ("--run", "--export")
    ]
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    what = "folder, name or id of a run of task=wsss, the folder of an exported one, or hf:ORG/NAME"
    parser.add_argument("--run", required=True, help=what)
    parser.add_argument("--seed", type=SEED, nargs="+", help="default: all that were trained")
    parser.add_argument("--split", choices=("val", "train", "test"), default="val")
    parser.add_argument("--export", type=Path, help="folder for the zip that VOC's server takes")
    parser.add_argument("--device", default="auto")
    add_trust(parser)
    return parser.parse_args([word for word in argv if word not in words]), words


def _export(run: TrainedRun, data: ImageSet, task: WSSS, folder: Path, split: str) -> str:
    if not task.method.segments:
        raise InputError(f"{run.folder}: its decoder was not trained, so there are no masks; "
                         "train with task.method.seg_weight above 0")  # fmt: skip
    path, miou = export(run.network, data, task.evaluation, folder, split)
    crf = "CRF" if task.evaluation.crf else "no CRF"
    quality = "no masks, not measured" if miou is None else f"mIoU {miou:.2f}"
    return f"{path}: {len(data.val)} images, multi-scale, {crf}, {quality}"


def _table(found: dict[str, dict], seeds: list[int], split: str) -> str:
    """Returns mIoU in percent by stage and seed, and how each stage was measured."""
    rows = [["stage", *(f"seed {seed}" for seed in seeds), "mean", "std"]]
    conditions = found[str(seeds[0])]["conditions"][split]
    stages = [stage for stage in conditions if f"{split}_{stage}_miou" in found[str(seeds[0])]]
    for stage in stages:
        values = [found[str(seed)][f"{split}_{stage}_miou"] for seed in seeds]
        std = f"{statistics.stdev(values):.2f}" if len(values) > 1 else "–"
        rows.append([stage, *(f"{v:.2f}" for v in values), f"{statistics.mean(values):.2f}", std])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]) for r in rows]
    return "\n".join([*lines, "", *(f"{stage}: {conditions[stage]}" for stage in stages)])
