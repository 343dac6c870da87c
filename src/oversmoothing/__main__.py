"""The command line: ``oversmoothing COMMAND …``, or ``python -m oversmoothing COMMAND …``."""

import sys
from importlib import import_module

from oversmoothing import __version__

USAGE = """usage: oversmoothing COMMAND …, or python -m oversmoothing COMMAND …
       oversmoothing COMMAND --help
       oversmoothing --version

Measures oversmoothing in deep networks, and trains networks with methods against it.
"""
COMMANDS = {  # name -> module with the function main, and what it does
    "diagnose": ("launch.diagnose", "measure a model of timm, transformers or a run"),
    "train": ("train", "train and measure; the same as python train.py"),
    "table": ("report.run_table", "run what a table lacks, and print it"),
    "figure": ("figure", "draw a figure, or compute another result"),
    "tune": ("report.tune", "search settings by validation accuracy"),
    "predict": ("launch.predict", "draw the predictions of a trained network"),
    "evaluate": ("launch.evaluate", "measure a trained network with other settings"),
    "data": ("launch.get", "download and verify raw data; convert labels"),
    "report": ("report.write_report", "write the pages of all results and of all runs"),
}


def main() -> int:
    """Runs the command that the command line names; its packages are imported only then.

    Without a command it prints its help and returns 1, as git does.
    """
    name, *words = sys.argv[1:] or [""]
    if name in ("", "-h", "--help", "help"):
        print(USAGE, *(f"  {key:9} {what}" for key, (_, what) in COMMANDS.items()), sep="\n")
        return 0 if name else 1
    if name in ("--version", "version"):
        print(f"oversmoothing {__version__}")
        return 0
    if name not in COMMANDS:
        from oversmoothing.errors import InputError, meant

        raise InputError(f"{name}: no such command; {meant(name, COMMANDS)}")
    sys.argv[1:] = words
    module = import_module(f"oversmoothing.lab.{COMMANDS[name][0]}")
    if name != "train":
        sys.argv[0] = f"oversmoothing {name}"  # which --help shows
    return module.main()


def cli() -> None:
    """Runs the command line and exits."""
    from oversmoothing.lab.launch.script import STOPPED, run_script

    words = " ".join(sys.argv[1:3])
    trains = words.startswith(("train", "table", "tune", "figure demo"))
    run_script(main, STOPPED if trains else "stopped")


if __name__ == "__main__":
    cli()
