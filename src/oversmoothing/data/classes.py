"""Names of the classes; label value k is the k-th name from 1, and 0 is background."""

from functools import cache
from importlib import resources

import yaml


@cache
def class_names(kind: str) -> tuple[str, ...]:
    """The K names of ``voc`` (20) or ``coco`` (80)."""
    text = resources.files("oversmoothing.data").joinpath("classes.yaml").read_text()
    return tuple(yaml.safe_load(text)[kind])
