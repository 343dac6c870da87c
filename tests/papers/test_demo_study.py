"""The demo's page begins with the answer, and its commands repeat its runs."""

import re
import shlex

import pytest

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.papers import demo_study as demo
from oversmoothing.lab.store.identity import ids


@pytest.fixture
def study() -> demo.Study:
    """GCNs that end at chance without a method; the later a method is listed, the better."""

    def result(accuracy: float, layers: int) -> dict:
        return {"test_accuracy": accuracy, "layers": {"effective_rank": [2.5] * layers + [9.0]}}

    better = {method: 20.0 + 10 * i for i, method in enumerate(demo.METHODS)}
    depths = sorted(demo.DEPTHS)
    return {m: {d: result(better[m] if d == 32 else 93.7, d) for d in depths} for m in better}


@pytest.mark.parametrize("data", demo.WORDS["graphs"])
def test_the_answer_names_the_methods_from_best_to_worst(data: str, study: demo.Study) -> None:
    text = demo._answer(data, study, chance=21.5)
    assert not {"{", "}"} & {*text}
    shown = [93.7, 20.0, 21.5, 70.0, 60.0, 50.0, 40.0, 30.0]
    assert [*map(float, re.findall(r"(\d+\.\d) %", text))] == shown
    assert "n = 1" in text and demo.WORDS["graphs"][data]["name"] in text


def test_the_command_with_the_settings_of_a_row_repeats_it(
    study: demo.Study,
) -> None:
    section = demo._graph("sbm", study)
    python, script, multirun, *words = shlex.split(section.command)
    for method, *_, settings in section.rows[1:]:
        own = [*words, *settings.strip("`").split()]
        for depth in demo.DEPTHS:
            one = [w for w in own if not w.startswith("backbone.depth=")]
            found = compose_config([*one, f"backbone.depth={depth}"])
            ran = demo._network("sbm", demo.METHODS[method][0].split(), depth)
            found.task.layer_metrics = True  # measures more, and trains the same
            assert ids(found)[0] == ids(ran)[0] and found.seeds == ran.seeds
