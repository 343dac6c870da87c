"""The switch that forbids downloads."""

import os

FORBIDDEN = "OVERSMOOTHING_OFFLINE=1 forbids downloads"


def offline() -> bool:
    """Whether the environment variable ``OVERSMOOTHING_OFFLINE`` is 1."""
    return os.environ.get("OVERSMOOTHING_OFFLINE") == "1"
