"""The log of a run, which is divided among the folders of its groups of seeds."""

import json
from pathlib import Path
from typing import Any


def log_text(folder: Path) -> str:
    """Returns the logs of all groups of seeds of a run, one after another."""
    return "".join(path.read_text("utf-8") for path in sorted(folder.glob("s*/metrics.jsonl")))


def log_lines(folder: Path) -> list[dict[str, Any]]:
    """Returns the parsed lines of ``log_text``."""
    return [json.loads(line) for line in log_text(folder).splitlines()]
