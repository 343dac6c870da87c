"""Checks Propositions 1 and 2 of Centered Self-Attention Layers under four kinds of weights.

oversmoothing figure propositions --jobs 2
"""

from omegaconf import DictConfig

from oversmoothing.lab.launch.command import configs, run_all, same_runs
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.launch.script import split_words, whole
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.store.files import write_text

WEIGHTS = {
    "identity": ["backbone.weights=identity"],
    "uniform U[0, 1]": ["backbone.weights=uniform"],
    "normal N(0, 1)": ["backbone.weights=normal"],
    "normal N(0, 16)": ["backbone.weights=normal", "backbone.weight_std=4"],
}


def main(argv: list[str]) -> int:
    """Writes ``propositions.md``; returns 1 if a run failed."""
    parser = figure_parser(__doc__, pdf=False, overrides=True)
    parser.add_argument("--jobs", type=whole(), default=1, help="number of processes side by side")
    words, overrides = split_words(argv)
    options = parser.parse_args(words)
    same_runs(overrides, ["experiment=prop1"])
    chosen = {
        (number, name): configs([f"experiment=prop{number}", *weights, "logger=none", *overrides])
        for number in (1, 2)
        for name, weights in WEIGHTS.items()
    }
    if run_all([config for [config] in chosen.values()], options.jobs):
        return 1
    lines = ["| proposition | weights | γ | seeds | worst of the seeds |", "|---|---|---|---|---|"]
    for (number, name), [config] in chosen.items():
        lines += [f"| {number} | {name} | {line} |" for line in _lines(config)]
    text = "\n".join(lines) + "\n"
    path = options.target / "propositions/propositions.md"
    write_text(path, text)
    print(text, path, sep="\n")
    return 0


def _lines(config: DictConfig) -> list[str]:
    """Returns one line for each γ: the verdict of the seed with the highest rank."""
    seeds = execute(config)["seeds"].values()
    lines = []
    for of_gamma in zip(*(seed["by_gamma"] for seed in seeds)):
        worst = max(of_gamma, key=lambda entry: (entry["rank"], entry["ratio"]))
        lines.append(f"{worst['gamma']:g} | {len(of_gamma)} | {worst['verdict']}")
    return lines
