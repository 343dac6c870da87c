"""The command ``diagnose``: prints a table, and writes it and a figure."""

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.errors import InputError, complain, install
from oversmoothing.lab.launch.diagnose.subject import Request, Subject
from oversmoothing.lab.launch.script import SEED, add_trust
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.files import writing


def add_options(parser: ArgumentParser) -> None:
    """Adds the options of the command to a parser."""
    parser.add_argument("source", help="timm:NAME, hf:NAME_OR_FOLDER, or the folder of a run")
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--text", type=Path, help="file with one text per line")
    parser.add_argument("--weights", help="file for timm's model, or none; default: published")
    parser.add_argument("--reference", choices=["random"], help="compare with random weights")
    parser.add_argument("--layers", nargs="+", help="names or globs; default: repeated blocks")
    parser.add_argument("--metrics", nargs="+", help="default: all that can be measured")
    parser.add_argument("--layout", help="BNC, NBC, BCN, BCHW or BHWC, where it is not clear")
    parser.add_argument("--prefix", type=int, help="leading tokens to leave out, such as CLS")
    parser.add_argument("--batch", type=int, default=16, help="samples in a forward pass")
    parser.add_argument("--limit", type=int, default=64, help="number of samples")
    parser.add_argument("--seed", type=SEED, help="seed of the run, or of random weights")
    parser.add_argument("--device", default="auto")
    add_trust(parser)
    parser.add_argument("--out", type=Path, help="folder; default: outputs/diagnose/SOURCE")


def main() -> int:
    """Reads the options of the command line, and runs the command."""
    parser = ArgumentParser(
        description="Measure how alike tokens or nodes are after every layer of a model."
    )
    add_options(parser)
    return run(parser.parse_args())


def run(options: Namespace) -> int:
    """Runs the command. Raises InputError for bad input."""
    for name in ("batch", "limit"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name}: expected 1 or more, got {getattr(options, name)}")
    subject = find(options)
    report = diagnose(
        subject.model,
        batches=subject.batches,
        layers=options.layers,
        metrics=options.metrics,
        layout=options.layout,
        prefix=options.prefix,
        reference=options.reference,
        seed=options.seed or 0,
    )
    print(f"{options.source}, {subject.described}\n{report}\n")
    folder = options.out or Path("outputs/diagnose") / re.sub(r"[^\w.-]+", "-", options.source)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    report.to_csv(folder / "layers.csv")
    print(folder / "layers.csv")
    try:
        report.plot(folder / "layers.png")
        print(folder / "layers.png")
    except InputError as error:  # the table is there without matplotlib
        complain(str(error))
    return 0


def find(options: Namespace) -> Subject:
    """Finds the model and the inputs that a command names."""
    own = ("source", "images", "text", "weights", "seed", "batch", "limit", "trust")
    request = Request(**{k: getattr(options, k) for k in own}, device=device(options.device))
    library, _, name = options.source.partition(":")
    torch.manual_seed(options.seed or 0)  # of weights that are not loaded
    if library == "timm" and name:
        from oversmoothing.lab.launch.diagnose.of_timm import of_timm

        return of_timm(name, request)
    if library == "hf" and name:
        from oversmoothing.lab.launch.diagnose.of_hf import of_hf

        return of_hf(name, request)
    try:
        from oversmoothing.lab.launch.diagnose.of_run import of_run
    except ImportError as error:
        raise InputError(
            f"{options.source}: expected timm:NAME or hf:NAME; a run of ours needs more packages "
            f"({error}); {install('repro')}"
        ) from error
    return of_run(request)
