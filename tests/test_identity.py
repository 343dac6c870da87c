"""Which configs are the same run."""

import pytest

from oversmoothing.check import compose_config
from oversmoothing.identity import identity, run_id, run_name

BASE = ["experiment=gnn_table5", "data=sbm", "aggregator=centered"]


@pytest.mark.parametrize(
    "same",
    [
        ["seeds=[7,8]"],
        ["device=cuda", "threads=3", "deterministic=warn"],
        ["paths.outputs=elsewhere", "paths.data=somewhere"],
        ["logger=none"],
        ["aggregator.gamma=-1", "backbone.depth=2"],  # -1 and -1.0, and what is default anyhow
    ],
)
def test_how_a_run_is_done_does_not_name_it(same: list[str]) -> None:
    assert run_id(compose_config(BASE + same)) == run_id(compose_config(BASE))


@pytest.mark.parametrize(
    "other",
    [
        ["aggregator.gamma=-0.5"],
        ["backbone.depth=4"],
        ["aggregator@then=none"],
        ["trainer.lr=0.01"],
        ["data.homophily=0.3"],
        ["aggregator=pairnorm"],
    ],
)
def test_what_a_run_computes_names_it(other: list[str]) -> None:
    assert run_id(compose_config(BASE + other)) != run_id(compose_config(BASE))


def test_a_later_option_with_a_default_keeps_earlier_names() -> None:
    """A key whose value is its default stands nowhere in the identity."""
    node = identity(compose_config(["backbone.depth=5"]))["backbone"]
    assert node == {"_target_": "oversmoothing.backbones.gcn.GCN", "depth": 5.0}


def test_the_name_is_readable_and_ends_in_the_id() -> None:
    config = compose_config(BASE)
    assert run_name(config) == f"nodes-sbm-centered-layernorm-{run_id(config)}"


IMAGES = ["experiment=wsss_voc"]


@pytest.mark.parametrize(
    "same",
    [
        ["trainer.workers=7", "trainer.log_every=3", "task.evaluation.workers=5"],
        ["trainer.betas=[0.9,0.999]", "task.augment.scale=[0.5,2]"],  # lists that are default
    ],
)
def test_nor_who_reads_images_nor_lists_that_are_default(same: list[str]) -> None:
    assert run_id(compose_config(IMAGES + same)) == run_id(compose_config(IMAGES))
    shown = identity(compose_config(IMAGES + same))
    assert "betas" not in shown["trainer"] and "scale" not in shown["task"]["augment"]


def test_a_list_that_is_not_default_names_a_run() -> None:
    other = compose_config([*IMAGES, "task.evaluation.splits=[train]"])
    assert run_id(other) != run_id(compose_config(IMAGES))
