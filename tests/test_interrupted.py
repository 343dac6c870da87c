"""Runs that are killed, short of disk or damaged, and go on as if nothing had happened.

golden.py stops all tasks within a step; here processes die from outside.
"""

import random
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from processes import command as begun
from run_log import log_lines, log_text
from small_runs import TRAINED, words

sys.path.append(str(Path(__file__).parent / "golden"))
from golden_described import described  # noqa: E402
from golden_runs import train  # noqa: E402

TRIALS = 2  # kills at random moments, of every task in turn
LONGER = {  # a small run ends before anybody can kill it
    "nodes": ["trainer.epochs=50", "seeds=[0,1]", "aggregator@then=layernorm"],
    "nodes_pyg": ["trainer.epochs=40"],
    "classification": ["trainer.iterations=20", "seeds=[0,1]"],
}
TASKS = [*LONGER, *(task for task in TRAINED if task not in (*LONGER, "glue"))]  # glue needs texts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def command(task: str, folder: Path) -> list[str]:
    more = ["device=cpu", "checkpoint_seconds=0", *LONGER.get(task, ["trainer.iterations=12"])]
    return [*words(task, folder / "outputs"), *more]


def run_of(folder: Path) -> Path:
    [run] = (path.parent for path in (folder / "outputs").glob("*/config.yaml"))
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    """Folders of undisturbed runs by task; each is made once."""
    known: dict[str, Path] = {}

    def of(task: str) -> Path:
        if task not in known:
            folder = tmp_path_factory.mktemp(task)
            assert train(command(task, folder)) == 0
            known[task] = run_of(folder)
        return known[task]

    return of


def goes_on(task: str, folder: Path, expected: Path) -> None:
    """Gives the command again: result, log, weights and names of files are as undisturbed."""
    assert train(command(task, folder)) == 0
    assert described(run_of(folder)) == described(expected)
    own = [{str(p.relative_to(of)) for p in of.rglob("*")} for of in (run_of(folder), expected)]
    left = {name for name in own[0] ^ own[1] if not name.endswith((".tmp", ".corrupt"))}
    assert not left, left


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_kill_at_any_moment(trial: int, tmp_path: Path, undisturbed) -> None:
    task, drawn = TASKS[trial % len(TASKS)], random.Random(trial)
    expected = undisturbed(task)
    lines = drawn.randrange(1, len(log_lines(expected)))
    process = begun(["train.py", *command(task, tmp_path)])
    logged = 0
    while logged < lines and process.running():
        logged = sum(log_text(run).count("\n") for run in (tmp_path / "outputs").glob("*"))
        time.sleep(0.002)
    process.send(drawn.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
    code, _, said = process.end()
    assert code != 0 or logged, said
    assert "Traceback" not in said, said
    goes_on(task, tmp_path, expected)


def test_two_processes_of_which_one_is_killed(tmp_path: Path, undisturbed) -> None:
    """Both ask for the same sweep; nothing is lost or trained twice."""
    asked = [*command("nodes", tmp_path), "-m", "aggregator.scale=0.25,0.5"]
    first, second = (begun(["train.py", *asked]) for _ in range(2))
    while not [*(tmp_path / "outputs").glob("*/s*/checkpoint.pt")]:
        time.sleep(0.01)
    first.send(signal.SIGKILL)
    code, _, said = second.end(300)
    assert code == 0, said
    assert train(asked) == 0
    runs = [path.parent for path in (tmp_path / "outputs").glob("*/result.json")]
    own = log_lines(undisturbed("nodes"))
    assert [len(log_lines(run)) for run in runs] == [len(own)] * 2


def full() -> None:
    """The limit on the size of a file makes the kernel refuse to write, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))


def test_a_full_disk(tmp_path: Path, undisturbed) -> None:
    code, _, said = begun(["train.py", *command("nodes", tmp_path)], before=full).end()
    assert code == 1 and "cannot be written" in said, said
    assert "Traceback" not in said, said
    goes_on("nodes", tmp_path, undisturbed("nodes"))


@pytest.mark.parametrize("name", ["s0-1/checkpoint.pt", "result.json"])
def test_a_damaged_file(name: str, tmp_path: Path, undisturbed) -> None:
    expected = undisturbed("nodes")
    run = tmp_path / "outputs" / expected.name
    (run / name).parent.mkdir(parents=True)
    (run / name).write_bytes(random.Random(name).randbytes(300))
    with pytest.warns(UserWarning, match="set aside"):
        goes_on("nodes", tmp_path, expected)
