"""What all scripts share, in processes of their own."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from processes import command

from oversmoothing.__main__ import main
from oversmoothing.errors import InputError
from oversmoothing.lab.store.environment import device

PATH = "check the path and its permissions"
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
        ("raise KeyboardInterrupt", 130, "", "stopped\n"),
        (f"open('/{'x' * 300}')", 2, "", f"error: /{'x' * 300}: File name too long; {PATH}\n"),
    ):
        process = script(body)
        assert process.communicate() == (out, err)
        assert process.returncode == code


def test_what_the_encoding_of_stdout_lacks_is_escaped() -> None:
    assert script("print('±')", PYTHONIOENCODING="ascii").communicate() == ("\\xb1\n", "")


def lacking() -> None:
    """Takes packages away, with the modules of them that are imported already."""
    packages = {"scipy", "wandb", "matplotlib"}
    known = [name for name in sys.modules if name.split(".")[0] in packages]
    sys.modules |= dict.fromkeys([*packages, *known])


@pytest.mark.parametrize("words", ["figure cures --help", "table table5", "train logger=wandb"])
def test_a_missing_package_is_one_line_with_what_installs_it(words: str, tmp_path: Path) -> None:
    """Found when the command starts, when it draws, and when a run begins."""
    small = ["data.num_nodes=400", "seeds=[0]"] if words.startswith("train") else []
    code, _, err = command(["oversmoothing", *words.split(), *small], tmp_path, lacking).end()
    assert code in (1, 2) and "Traceback" not in err, err
    assert re.search(r"^error: .*needs (scipy|wandb|matplotlib); .*pip install", err, re.M)


def test_a_reader_that_leaves_is_no_error_of_ours() -> None:
    """As `oversmoothing … | head -1`: no traceback, whether output is long or still waits."""
    for body in ("print('x' * 10**6)", "print('x')"):
        process = script(body)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


def test_a_command_line_without_a_command_prints_help_as_git_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for words, code in (([], 1), (["--help"], 0)):
        monkeypatch.setattr(sys, "argv", ["oversmoothing", *words])
        assert main() == code
        assert "usage: oversmoothing COMMAND" in capsys.readouterr().out


MISTAKES = {  # command -> what the only line names
    "evaluate": "--run",
    "evaluate --run x --split test": "--split",
    "predict photo.jpg": "--run",
    "diagnose": "source",
    "table table5 --colums L=2": "--colums",
    "table table5 device=cpu": "device=cpu",
    "tune table6 --plam": "--plam",
    "figure cures --layers x": "--layers",
    "figure cures --graph Cora": "--graph",  # no prefix of an option counts
    "figure hem_fig3 --step-sizes a": "--step-sizes",
    "report results": "results",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_wrong_option_is_one_line_with_its_name(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["oversmoothing", *words.split()])
    with pytest.raises(InputError) as refused:
        main()
    [line] = refused.value.lines
    assert MISTAKES[words] in line
    assert capsys.readouterr().err == ""


def test_a_gpu_without_float64_is_refused_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.warns(UserWarning, match="^device=auto: runs on the CPU, not on MPS"):
        assert device("auto").type == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device("auto")  # said once
    with pytest.raises(InputError, match="^device: MPS is not supported"):
        device("mps")


def test_a_numbered_gpu_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs and kernels of Triton take the current GPU."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert [device("cuda:1")] == chosen
    assert device("cuda").index is None
    with pytest.raises(InputError, match="device"):
        device("cuda:2")
    assert len(chosen) == 1
