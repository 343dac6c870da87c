"""Generated sections of written files."""

from pathlib import Path

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.report.markers import replace_between_markers

README = "# Title\n\n<!-- t:start -->\nold\n<!-- t:end -->\n\ntail — ü\n"


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(README, encoding="utf-8")
    return path


def test_only_the_text_between_the_markers_changes(readme: Path) -> None:
    replace_between_markers(readme, "t", "\nnew \\1 text\n")
    assert readme.read_text(encoding="utf-8") == README.replace("old", "new \\1 text")
    replace_between_markers(readme, "t", "old")
    assert readme.read_text(encoding="utf-8") == README


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "<!-- t:start --> only",
        "<!-- t:end --> before <!-- t:start -->",
        README + README,
    ],
)
def test_markers_out_of_order_are_met_with_one_line(readme: Path, text: str) -> None:
    readme.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="README.md.*t:start") as error:
        replace_between_markers(readme, "t", "new")
    assert "\n" not in str(error.value)
    assert readme.read_text(encoding="utf-8") == text


def test_a_missing_file_is_met_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="README.md"):
        replace_between_markers(tmp_path / "README.md", "t", "")
