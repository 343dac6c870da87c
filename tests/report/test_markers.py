"""Generated sections of written files."""

from pathlib import Path

import pytest

from oversmoothing.errors import InputError
from oversmoothing.report.markers import is_current, replace_between_markers

README = "# Title\n\n<!-- t:start -->\nold\n<!-- t:end -->\n\ntail — ü\n"


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(README, encoding="utf-8")
    return path


def test_what_is_put_in_is_current_until_it_changes(readme: Path) -> None:
    assert not is_current(readme, "t", "| a |\n")
    replace_between_markers(readme, "t", "| a |\n")
    assert is_current(readme, "t", "| a |\n")
    assert not is_current(readme, "t", "| b |\n")
    readme.write_text(readme.read_text(encoding="utf-8").replace("| a |", "| a  |"), "utf-8")
    assert not is_current(readme, "t", "| a |\n")


def test_all_else_stays(readme: Path) -> None:
    replace_between_markers(readme, "t", "new \\1 text")
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
    for use in (replace_between_markers, is_current):
        with pytest.raises(InputError, match="README.md.*t:start") as error:
            use(readme, "t", "new")
        assert "\n" not in str(error.value)
    assert readme.read_text(encoding="utf-8") == text


def test_a_missing_file_is_met_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="README.md"):
        is_current(tmp_path / "README.md", "t", "")
