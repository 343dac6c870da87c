"""What all scripts share, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script

def main():
    {body}
    return 3

run_script(main)
"""


def script(body: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", CALL.format(body=body)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def test_it_exits_with_what_main_returns_or_with_one_line() -> None:
    for body, code, out, err in (
        ("print('x')", 3, "x\n", ""),
        ("raise InputError('no such file')", 2, "", "error: no such file\n"),
        ("raise KeyboardInterrupt", 1, "", "stopped\n"),
        (
            "open('n' * 300)",
            2,
            "",
            f"error: {'n' * 300}: File name too long; choose a shorter path\n",
        ),
    ):
        process = script(body)
        assert process.communicate() == (out, err)
        assert process.returncode == code


def test_a_reader_that_leaves_is_no_error_of_ours() -> None:
    """As `make plan | head -1`: no traceback, whether output is long or still waits at the end."""
    for body in ("print('x' * 10**6)", "print('x')"):
        process = script(body)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "abc"}, {"RANK": "1"}, {"WORLD_SIZE": "2", "RANK": "0"}, {"LOCAL_RANK": "-1"}],
)
def test_half_of_what_torchrun_sets_is_refused_with_its_name(environment: dict[str, str]) -> None:
    process = script("print('run')", **environment)
    said = process.communicate()
    assert process.returncode == 2 and said[0] == "" and said[1].count("\n") == 1
    assert said[1].startswith(("error: RANK=", "error: MASTER_ADDR", "error: LOCAL_RANK=-1"))


def test_closed_streams_and_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    code = CALL.format(body="print('x')")
    for shell, expected in (
        ('"$0" -c "$1" >&-', (3, "", "")),
        ('"$0" -c "$1" >&- 2>&-', (3, "", "")),
        ('cd "$2" && rmdir "$2" && "$0" -c "$1"', (2, "", "error: the working folder does not")),
    ):
        command = ["sh", "-c", shell, sys.executable, code, str(tmp_path / "gone")]
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == expected[:2]
        assert done.stderr.startswith(expected[2]) and done.stderr.count("\n") == bool(expected[2])
