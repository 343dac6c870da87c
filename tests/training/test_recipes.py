"""Every recipe with every task: refused before any work, or trained with."""

import json
from pathlib import Path

import pytest
from run_log import log_text
from small_runs import words

from oversmoothing.errors import Problems
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import execute, run_folder

STEPS = ["trainer.iterations=3", "trainer.batch_size=4", "trainer.warmup=0", "trainer.workers=0"]
STEPS += ["trainer.log_every=1"]
RECIPES = {
    "adam": ["trainer.epochs=3", "trainer.eval_every=1"],
    "bert": [*STEPS, "trainer.epochs=0.01"],  # of 8 images one step, of 635 pairs two
    "deit_short": STEPS,
    "emanet": STEPS,
    "toco": STEPS,
}
OF_IMAGES = {"bert": 1, "deit_short": 3, "emanet": 3, "toco": 3}
TAKES = {  # task -> steps by recipe
    "nodes": {"adam": 3},
    "glue": {"bert": 2},
    "classification": OF_IMAGES,
    "segmentation": OF_IMAGES,
    "wsss": OF_IMAGES,
}


@pytest.mark.parametrize("trainer", RECIPES)
@pytest.mark.parametrize("task", TAKES)
def test_a_recipe_is_refused_in_one_line_or_trains(
    task: str, trainer: str, tmp_path: Path, data_root: Path
) -> None:
    own = [word for word in words(task, tmp_path / "out") if not word.startswith("trainer")]
    own += [f"trainer={trainer}", *RECIPES[trainer], "device=cpu", f"paths.data={data_root}"]
    if trainer not in TAKES[task]:
        with pytest.raises(Problems) as refused:
            configs(own)
        assert refused.value.lines[0].startswith("trainer: this task cannot use ")
        assert len(refused.value.lines) == 1 and "\n" not in refused.value.lines[0]
        return
    [config] = configs(own)
    execute(config)
    lines = log_text(run_folder(config)).splitlines()
    assert json.loads(lines[-1]).get("step", len(lines)) == TAKES[task][trainer]
