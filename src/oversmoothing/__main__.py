"""The command line of the library: ``python -m oversmoothing diagnose …``."""

from argparse import ArgumentParser

from oversmoothing.lab.launch.diagnose import command
from oversmoothing.lab.launch.script import run_script


def main() -> int:
    parser = ArgumentParser("python -m oversmoothing", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    what = "Measure how alike tokens or nodes are after every layer of a model."
    diagnose = commands.add_parser("diagnose", help=what, description=what)
    command.add_options(diagnose)
    return command.run(parser.parse_args())


def cli() -> None:
    """Runs the command line and exits."""
    run_script(main)


if __name__ == "__main__":
    cli()
