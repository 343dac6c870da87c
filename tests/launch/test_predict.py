"""The titles of two masks distinguish their runs."""

from pathlib import Path
from types import SimpleNamespace

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.predict import titles


def run(name: str, *words: str) -> SimpleNamespace:
    config = compose_config(["experiment=seg_voc_subset", *words])
    return SimpleNamespace(folder=Path(f"segmentation-{name:>010}"), config=config)


def test_aggregators_are_named_and_no_more_where_that_suffices() -> None:
    assert titles([run("1", "aggregator=hem")]) == ["mask"]
    both = (run("1", "aggregator=none"), run("2", "aggregator=external"))
    assert titles(both) == ["no unit", "External"]


def test_one_aggregator_twice_shows_the_options_that_differ() -> None:
    steps = (run(size, "aggregator=hem", f"aggregator.step_size={size}") for size in ("0.2", "0.5"))
    assert titles([*steps, run("3", "aggregator=none")]) == [
        "EM\nstep_size=0.2",
        "EM\nstep_size=0.5",
        "no unit",
    ]


def test_runs_that_differ_elsewhere_are_told_apart_by_their_ids() -> None:
    runs = (run("1"), run("2", "trainer.iterations=7"))
    assert [title.splitlines()[-1] for title in titles(runs)] == ["0000000001", "0000000002"]
