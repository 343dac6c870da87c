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
