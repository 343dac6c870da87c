"""Signatures from sources are those that importing gives."""

import re
from pathlib import Path

import pytest
from hydra.utils import get_object

from oversmoothing.lab.config import source, types
from oversmoothing.lab.config.folders import CONFIGS

TEXTS = [path.read_text() for path in CONFIGS.rglob("*.yaml")]
TARGETS = sorted({t for text in TEXTS for t in re.findall(r"_target_: (\w+\.\S+)", text)})


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_of_the_configs(target: str) -> None:
    read, imported = source.signature(target), types.signature(get_object(target))
    if target.endswith(".NoAggregator"):  # takes what torch's Module takes
        assert read is None
        return
    assert [*read[0]] == [*imported[0]]
    for name, parameter in imported[0].items():
        assert types.is_required(read[0][name]) == types.is_required(parameter)
        if types.is_checked(hint := imported[1][name]):
            ours = re.sub(r"oversmoothing\.[\w.]+", "typing.Any", types.describe(hint))
            assert types.describe(read[1][name]) == ours


UNKNOWN = {
    "kwargs": "def made(**options): ...",
    "decorated": "import click\n\n\n@click.command\ndef made(a: int): ...",
    "inherited": "from torch.nn import Linear\n\n\nclass made(Linear): ...",
    "new": "class made:\n    def __new__(cls, a: int): ...",
    "assigned": "made = print",
    "broken": "def made(:",
    "absent": "def other(): ...",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_a_source_does_not_tell_is_left_to_the_import(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"source_{name}.py").write_text(UNKNOWN[name])
    monkeypatch.syspath_prepend(tmp_path)
    assert source.signature(f"source_{name}.made") is None
    assert source.signature("no_such_package.made") is None
