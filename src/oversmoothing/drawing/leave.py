"""Pictures that a training run leaves in its folder."""

import warnings
from collections.abc import Callable
from typing import Any

from oversmoothing import distributed
from oversmoothing.store.recorder import Recorder


def leave(recorder: Recorder, seed: int, draw: Callable[[], dict[str, Any]]) -> None:
    """Saves figures as ``<name>-seed<seed>.png`` in a run's folder and passes them to its sink.

    An error becomes a warning, so that it cannot end a run. matplotlib is imported only now, which
    keeps the start of a program short.

    Args:
        draw: returns matplotlib figures by name.
    """
    if distributed.rank() > 0:
        return
    try:
        from oversmoothing.drawing.files import save

        for name, figure in draw().items():
            [path] = save(figure, recorder.folder / f"{name}-seed{seed}")
            recorder.picture(name, path)
    except Exception as error:  # hours of training are worth more than a picture
        why = str(error).split("\n")[0]
        warnings.warn(f"no pictures of seed {seed} ({type(error).__name__}: {why})", stacklevel=3)
