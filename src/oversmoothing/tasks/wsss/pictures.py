"""Pictures that a run of ``task=wsss`` leaves in its folder."""

from typing import Any

from oversmoothing.drawing.leave import leave
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.wsss.evaluator import Evaluator
from oversmoothing.tasks.wsss.look import Viewer, distinct_classes, look_at

NUMBER = 4  # images


def leave_pictures(
    evaluator: Evaluator, recorder: Recorder, seed: int, result: dict[str, Any]
) -> None:
    """Leaves ``pictures-seed<seed>.png`` and ``tokens-seed<seed>.png``.

    They show validation images that ``distinct_classes`` chooses, and token similarity by block.

    Args:
        result: of the seed, with ``layers_before`` and ``layers_after``.
    """

    def draw() -> dict[str, Any]:
        from oversmoothing.drawing.tokens import draw_tokens, token_rows
        from oversmoothing.tasks.wsss.panels import draw_looks

        data = evaluator.data
        viewer = Viewer(evaluator.network, evaluator.method, evaluator.evaluation)
        looks = [look_at(viewer, data, id) for id in distinct_classes(data, NUMBER)]
        tokens = draw_tokens(token_rows({"": [result]}))
        return {"pictures": draw_looks(looks, data.label_names), "tokens": tokens}

    leave(recorder, seed, draw)
