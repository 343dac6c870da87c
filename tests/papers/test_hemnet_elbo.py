"""The counts of HEMNet's ELBO: which E-steps lower it."""

import json
from pathlib import Path

import pytest

from oversmoothing.lab.papers.hemnet_elbo import main


def test_only_the_dot_product_with_free_norms_lowers_the_elbo(tmp_path: Path) -> None:
    assert main(["--runs", "3", "--iterations", "8", "--folder", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "elbo.json").read_text())["rows"]
    assert all(row["n_falls"] == 0 for row in rows)
    falling = {row["e_step"] for row in rows if row["e_falls"]}
    assert falling == {"dot product (HEMNet, Eq. 8)"}
    assert len((tmp_path / "tables/elbo.md").read_text().splitlines()) == 2 + 9


def test_an_e_step_needs_a_step_before_it() -> None:
    with pytest.raises(SystemExit) as left:
        main(["--iterations", "1"])
    assert left.value.code == 2
