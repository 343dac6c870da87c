"""Names of timm's models, read from its sources, since importing timm takes seconds."""

import difflib
import re
from importlib.util import find_spec
from pathlib import Path

from oversmoothing.errors import InputError

MODEL = re.compile(r"^@register_model\s+def (\w+)\(", re.M)


def check_name(name: str, modules: dict[str, str], kind: str, example: str) -> None:
    """Checks that timm has a model, without importing timm.

    Args:
        name: of the model, with or without the tag of its weights.
        modules: of ``timm.models``, with the first letters of the names that are supported.
        kind, example: of these networks, for the message.

    Raises:
        InputError: no module has this model.
        ModuleNotFoundError: timm is not installed.
    """
    known = [m for module, start in modules.items() for m in _models(module) if m.startswith(start)]
    base = name.split(".")[0]
    if base not in known:
        close = difflib.get_close_matches(base, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"for example {example}"
        raise InputError(f"backbone.name: expected {kind} of timm, got {name!r}; {hint}")


def _models(module: str) -> list[str]:
    if (spec := find_spec("timm")) is None:
        raise ModuleNotFoundError("No module named 'timm'", name="timm")
    return MODEL.findall((Path(spec.origin).parent / f"models/{module}.py").read_text("utf-8"))
