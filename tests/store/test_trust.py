"""Which names a config of unknown origin may contain, and how it is read."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.config import CONFIGS, compose_config
from oversmoothing.lab.store.lookup import config_of, own_targets, read_config

WORDS = ["experiment=wsss_scenes"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with nothing but its config."""
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(compose_config(WORDS)))
    return tmp_path


def test_every_experiment_of_the_package_is_its_own() -> None:
    for path in sorted((CONFIGS / "experiment").glob("*.yaml")):
        config = compose_config([f"experiment={path.stem}"])
        for part in ("task", "data", "backbone", "aggregator", "then", "trainer", "logger"):
            if config[part]:
                assert config[part]._target_ in own_targets()
    assert all(target.startswith("oversmoothing.") for target in own_targets())


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"data": {"_target_": "torch.load", "f": "x.pt"}}, "names torch.load"),
        ({"task.augment._target_": "os.system"}, "names os.system"),
        ({"data.extra": [{"_target_": "builtins.eval"}]}, "names builtins.eval"),
        ({"data._target_": "${data.name}"}, "names ${data.name}"),
        (
            {"data._target_": "oversmoothing.lab.store.files.os.remove"},
            "names oversmoothing.lab.store",
        ),
        ({"data._target_": "a/b.c"}, "names a/b.c"),
        ({"data._args_": ["/"]}, "key '_args_'"),
        ({"data._recursive_": False}, "key '_recursive_'"),
        ({"data.name": "${oc.env:HOME}"}, "interpolation '${oc.env:HOME}'"),
        ({"data.name": "${data.root}${data.root}"}, "interpolation"),
        ({"spare": "${oc.create:'{_target_: os.system}'}"}, "interpolation"),
    ],
)
def test_foreign_code_is_refused_and_not_imported(folder: Path, change: dict, reason: str) -> None:
    config = OmegaConf.load(folder / "config.yaml")
    for key, value in change.items():
        OmegaConf.update(config, key, value, merge=False, force_add=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    with pytest.raises(InputError) as refused:
        config_of(folder, ("wsss",))
    assert reason in str(refused.value) and "--trust" in str(refused.value)
    assert config_of(folder, ("wsss",), trust=True).task


@pytest.mark.parametrize(
    "text, reason",
    [
        ("a: " + "[" * 5000 + "]" * 5000, "cannot be read"),
        ("a: !!python/object/apply:os.getcwd []", "python/object"),
        ("\x00", "special characters"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("_target_: [x]", "names"),
    ],
)
def test_yaml_that_is_no_config_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=reason) as refused:
        read_config(tmp_path / "config.yaml")
    assert "\n" not in str(refused.value)
