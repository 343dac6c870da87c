"""Saves the pictures of a training run in its folder."""

import warnings
from collections.abc import Callable
from typing import Any

from oversmoothing import distributed
from oversmoothing.lab.store.run import Recorder


def leave(recorder: Recorder, seed: int, draw: Callable[[], dict[str, Any]]) -> None:
    """Saves figures as ``<name>-seed<seed>.png`` in a run's folder and passes them to its sink.

    Errors become warnings, so that they cannot end a run. matplotlib is imported here and not
    earlier, so that programs start fast.

    Args:
        draw: returns matplotlib figures by name.
    """
    if distributed.rank() > 0:
        return
    try:
        from oversmoothing.lab.drawing.files import save

        for name, figure in draw().items():
            [path] = save(figure, recorder.folder / f"{name}-seed{seed}")
            recorder.picture(name, path)
    except Exception as error:  # a failed picture must not end a run
        why = str(error).split("\n")[0]
        warnings.warn(f"no pictures of seed {seed} ({type(error).__name__}: {why})", stacklevel=3)
