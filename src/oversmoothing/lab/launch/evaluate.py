"""Measures a trained network with other evaluation settings.

oversmoothing evaluate --run wsss-voc-centered-… evaluation.ms_scales=[0.75,1,1.25]
oversmoothing evaluate --run … --seed 0 1 --split train evaluation.crf=null evaluation.limit=50
oversmoothing evaluate --run … evaluation.crf={}              # with ToCo's CRF
"""

import copy
import dataclasses
import hashlib
import json
import statistics
import sys
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import Problems, meant
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.launch.check import config_problems
from oversmoothing.lab.launch.config import parse
from oversmoothing.lab.launch.script import DEVICE, SEED, Parser
from oversmoothing.lab.launch.trained import load, require_seed
from oversmoothing.lab.store.environment import environment
from oversmoothing.lab.store.files import read_or_set_aside, sha256, write_text
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.store.weights import weights_of
from oversmoothing.lab.tasks.base import Parts
from oversmoothing.lab.tasks.wsss.crf import CRF
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator
from oversmoothing.lab.tasks.wsss.network import Network
from oversmoothing.lab.tasks.wsss.settings import Evaluation
from oversmoothing.lab.tasks.wsss.task import WSSS

HOW = ("batch", "workers")  # settings that do not change results


def main() -> int:
    options, words = _options(sys.argv[1:])
    loaded = partial(load, on=options.device)
    run = loaded(options.run, (options.seed or [None])[0])
    trained = sorted(weights_of(run.folder, run.config))
    seeds = [*dict.fromkeys(options.seed or trained)]
    for seed in seeds:  # fail before any measurement
        require_seed(run.folder, trained, seed)
    config = configured(run.config, words)
    for key in ("splits", "ms_splits"):
        config.task.evaluation[key] = [options.split]
    task, data = checked(config, run.network), build(config.data)
    for seed in seeds:
        each = run if seed == run.seed else loaded(run.folder, seed)
        path, content = measure(each.weights, seed, each.network, data, task)
    print(_table(content["seeds"], seeds, options.split), path, sep="\n\n")
    return 0


# Settings


def configured(config: DictConfig, words: list[str]) -> DictConfig:
    """Returns a run's config with other settings.

    Args:
        config: of the run; it is not changed.
        words: ``evaluation.<key>=<value>`` and ``paths.data=<folder>``.

    Raises:
        Problems: a key is unknown or used only in training, or a value has a wrong type.
    """
    config = copy.deepcopy(config)
    overrides, problems = parse(words)
    for override in overrides:
        key = override.key_or_group.removeprefix("task.")
        if key not in (known := _keys()):
            problems.append(f"{key}: cannot be set here; {meant(key, known)}")
        elif override.is_delete() or override.is_sweep_override():
            problems.append(f"{key}: expected one value; run this command once for each")
        else:
            _put(config, key, override.value())
    found = {} if problems else config_problems(config)
    lines = (line for part in found.values() for line in part)
    about = ("task.evaluation", "paths.", "an interpolation")
    if problems := problems + [line for line in lines if line.startswith(about)]:
        raise Problems(problems)
    return config


def _keys() -> list[str]:
    """Lists the keys that can be set; ``splits`` and ``ms_splits`` are set by --split."""
    own = [field.name for field in dataclasses.fields(Evaluation) if "splits" not in field.name]
    crf = [f"crf.{field.name}" for field in dataclasses.fields(CRF)]
    return [*(f"evaluation.{name}" for name in own + crf), "paths.data"]


def _put(config: DictConfig, key: str, value: Any) -> None:
    evaluation = config.task.evaluation
    if key.startswith("evaluation.crf") and value is not None and not evaluation.get("crf"):
        evaluation.crf = {"_target_": f"{CRF.__module__}.{CRF.__name__}"}
    OmegaConf.update(config, key if key == "paths.data" else f"task.{key}", value)


def checked(config: DictConfig, network: Network) -> WSSS:
    """Builds the task of a config and checks that its options fit the network.

    Raises:
        InputError: a value is out of range, or the evaluation size is not a multiple of the patch.
    """
    task: WSSS = build(config.task)
    task.check(network, Parts([]))
    return task


# Numbers


def stored(folder: Path, data: ImageSet, evaluation: Evaluation) -> tuple[Path, dict[str, Any]]:
    """Returns path and content of the results file for some settings; a new one has no ``seeds``.

    Args:
        folder: of the run.
        data: whose checksum is part of the file's name.
        evaluation: the settings; ``splits`` names the one split to measure.
    """
    plain = dataclasses.asdict(evaluation)
    settings = {key: value for key, value in plain.items() if key not in HOW}
    content = {"run": folder.name, "data": data.checksum, "settings": settings}
    text = json.dumps([settings, data.checksum], sort_keys=True)
    path = folder / f"evaluation-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
    known = read_or_set_aside(path, lambda path: json.loads(path.read_text("utf-8"))["seeds"])
    return path, content | {"seeds": known or {}}


def measure(
    file: Path, seed: int, network: Network, data: ImageSet, task: WSSS
) -> tuple[Path, dict[str, Any]]:
    """Measures a seed and stores the numbers, unless they exist for the same weights.

    Args:
        file: weights of the network, in the folder of its run.
        seed: of the network.
        network: trained.
        data: with masks.
        task: from ``checked``.

    Returns:
        Path of the file and its content: ``seeds`` -> keys as in ``result.json``.
    """
    folder, evaluation = file.parent, task.evaluation
    path, content = stored(folder, data, evaluation)
    weights = sha256(file)[:12]
    if content["seeds"].get(str(seed), {}).get("weights_sha256") == weights:
        return path, content
    [split], started = evaluation.splits, time.monotonic()
    place = next(network.parameters()).device
    recorder = Recorder(folder, [seed])
    evaluator = Evaluator(network, data, evaluation, place, recorder, task.method)
    results = evaluator.split(split) | {"conditions": {split: evaluator.conditions(split)}}
    results |= {"weights_sha256": weights, "env": environment(str(place))}
    results["seconds"] = round(time.monotonic() - started, 2)
    path, content = stored(folder, data, evaluation)  # another process may have added a seed
    seeds = content["seeds"] | {str(seed): results}
    content["seeds"] = dict(sorted(seeds.items(), key=lambda item: int(item[0])))
    write_text(path, json.dumps(content, indent=1) + "\n")
    return path, content


def _options(argv: list[str]) -> tuple[Namespace, list[str]]:
    """Returns the options, and the words that set keys."""
    words = [
        word
        for flag, word in zip(["", *argv], argv)
        if "=" in word and not word.startswith("-") and flag != "--run"
    ]
    parser = Parser(__doc__)
    parser.add_argument("--run", required=True, help="folder, name or id of a run of task=wsss")
    parser.add_argument("--seed", type=SEED, nargs="+", help="default: all that were trained")
    parser.add_argument("--split", choices=("val", "train"), default="val", help="default: val")
    parser.add_argument("--device", default="auto", help=DEVICE)
    return parser.parse_args([word for word in argv if word not in words]), words


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
