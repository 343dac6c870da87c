"""Hands commands over to Hydra: for its launchers and sweepers, or to show a config."""

import multiprocessing
import signal
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from oversmoothing.lab.config.folders import CONFIGS
from oversmoothing.lab.launch.attempts import attempt, trial
from oversmoothing.lab.processes import follow_parent

SHOWING = {"--help", "-h", "--cfg", "-c", "--info", "-i", "--hydra-help"}


def run_by_hydra(words: list[str]) -> None:
    """Hands a checked command line over to Hydra."""
    if SHOWING & {word.split("=")[0] for word in words} and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # else `| head` is an error
    sys.argv[1:] = words
    train()


@hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name="config")
def train(config: DictConfig) -> float | None:
    """Runs one config for Hydra; returns its metric if a sweeper chooses the configs by it."""
    if multiprocessing.parent_process():  # in a worker of hydra/launcher=processes
        follow_parent()
    hydra = HydraConfig.get()
    chosen = " ".join(hydra.overrides.task)
    if hydra.runtime.choices["hydra/sweeper"] != "basic":
        return trial(config, chosen)
    attempt(config, wait=True, swept=chosen)
    return None
