"""Checks Propositions 1 and 2 under four kinds of weights and writes what came out.

python scripts/propositions.py --jobs 2
"""

import argparse
from pathlib import Path

from omegaconf import DictConfig

from oversmoothing.launch import command as check
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.execute import execute
from oversmoothing.launch.script import run_script
from oversmoothing.store.files import write_text

FOLDER = Path(__file__).parents[1] / "results" / "propositions"
WEIGHTS = {
    "identity": ["backbone.weights=identity"],
    "uniform U[0, 1]": ["backbone.weights=uniform"],
    "normal N(0, 1)": ["backbone.weights=normal"],
    "normal N(0, 16)": ["backbone.weights=normal", "backbone.weight_std=4"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    options = parser.parse_args()
    configs = {
        (number, weights): check.configs([f"experiment=prop{number}", *words, "logger=none"])[0]
        for number in (1, 2)
        for weights, words in WEIGHTS.items()
    }
    if run_all(list(configs.values()), options.jobs):
        return 1
    lines = ["| proposition | weights | γ | seeds | worst of the seeds |", "|---|---|---|---|---|"]
    for (number, weights), config in configs.items():
        lines += [f"| {number} | {weights} | {line} |" for line in _lines(config)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    write_text(FOLDER / "propositions.md", text)
    print(text, FOLDER / "propositions.md", sep="\n")
    return 0


def _lines(config: DictConfig) -> list[str]:
    """One line a γ: the verdict of the seed with the highest rank."""
    seeds = execute(config)["seeds"].values()
    lines = []
    for of_gamma in zip(*(seed["by_gamma"] for seed in seeds)):
        worst = max(of_gamma, key=lambda entry: (entry["rank"], entry["ratio"]))
        lines.append(f"{worst['gamma']:g} | {len(of_gamma)} | {worst['verdict']}")
    return lines


if __name__ == "__main__":
    run_script(main)
