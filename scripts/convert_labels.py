"""The command ``oversmoothing data labels …``."""

import sys

from oversmoothing.__main__ import cli

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "labels"]
    cli()
