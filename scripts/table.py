"""The command ``oversmoothing table …``."""

import sys

from oversmoothing.__main__ import cli

if __name__ == "__main__":
    sys.argv.insert(1, "table")
    cli()
