"""Names of the classes, in the order of their label values."""

from functools import cache
from importlib import resources

import yaml


@cache
def class_names(kind: str) -> tuple[str, ...]:
    """The K names of ``voc`` (20), ``coco`` (80), ``context`` (59) or ``coco_stuff`` (171)."""
    text = resources.files("oversmoothing.data.images").joinpath("classes.yaml").read_text()
    parts = yaml.safe_load(text)[kind]  # names, or lists of them
    names = [[part] if isinstance(part, str) else part for part in parts]
    return tuple(name for part in names for name in part)
