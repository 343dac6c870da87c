"""Writes a trained network as a folder that others can load: safetensors, config, numbers, card."""

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.launch.card import TASKS, card
from oversmoothing.lab.launch.loading import TrainedRun, load
from oversmoothing.lab.launch.script import SEED, add_trust
from oversmoothing.lab.store.files import write_text, writing
from oversmoothing.lab.store.lookup import config_of, find
from oversmoothing.lab.store.results import read_result
from oversmoothing.lab.store.weights import SHARED, share_weights, weights_of

PATHS = {
    "data": "${oc.env:DATA_ROOT,data}",
    "outputs": "outputs",
    "cache": "${paths.outputs}/cache",
}


def export(run: str, folder: Path, seed: int | None = None, trust: bool = False) -> list[Path]:
    """Writes ``model.safetensors``, ``config.yaml``, ``metrics.json`` and ``README.md``.

    Args:
        run: folder of a run, or its name or id below ``outputs``.
        folder: a new or empty one.
        seed: of the network; needed if several were trained.
        trust: as for ``load``.

    Returns:
        The files.

    Raises:
        InputError: the run does not exist, it has several seeds and none is chosen, weights are
            missing or damaged, or the folder is not empty.
    """
    source = find(run)
    found = weights_of(source, config_of(source, tuple(TASKS), trust))
    if seed is None and len(found) > 1:
        seeds = " or ".join(map(str, sorted(found)))
        raise InputError(f"{source}: trained with several seeds; choose one with --seed {seeds}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already; choose another folder with --to")
    trained = load(source, seed, "cpu", tuple(TASKS), trust)
    config = _shared(trained)
    try:
        metrics = _metrics(trained)
        text = card(trained, metrics)
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"{source / 'result.json'}: not what a run writes ({reason_of(error)}); restore the "
            "file, or run the command of this run again"
        ) from error
    with writing(folder, "--to"):
        folder.mkdir(parents=True, exist_ok=True)
    share_weights(folder / SHARED, trained.network.state_dict())
    write_text(folder / "config.yaml", OmegaConf.to_yaml(config))
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")
    write_text(folder / "README.md", text)
    return [folder / name for name in (SHARED, "config.yaml", "metrics.json", "README.md")]


def _shared(run: TrainedRun) -> DictConfig:
    """Returns the config to publish, with one seed and without this machine's folders."""
    config = config_of(run.folder, (run.task_name,), trust=True)  # already checked
    config.seeds, config.paths = [run.seed], PATHS
    return config


def _metrics(run: TrainedRun) -> dict[str, Any]:
    """Returns the part of ``result.json`` that belongs to the seed."""
    result = read_result(run.folder) or {}
    own = result.get("seeds", {}).get(str(run.seed), {})
    result["env"] = result.get("envs", {}).get(str(run.seed), result.get("env", {}))
    kept = {key: result[key] for key in ("id", "name", "env") if key in result}
    return {**kept, "seeds": {str(run.seed): own}}


USAGE = """Writes a trained network as a folder to share, with config, numbers and model card.

python scripts/export.py --run outputs/wsss-… --to my-network
python scripts/predict.py photo.jpg --run my-network
"""


def main() -> int:
    parser = ArgumentParser(description=USAGE, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="folder, name or id of a run")
    parser.add_argument("--to", required=True, type=Path, help="new folder")
    parser.add_argument("--seed", type=SEED, help="needed if several were trained")
    add_trust(parser)
    options = parser.parse_args()
    print(*export(options.run, options.to, options.seed, options.trust), sep="\n")
    return 0
