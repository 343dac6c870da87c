"""The table, the files and the figure of a report."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diagnosed import bert, vit
from PIL import Image

import oversmoothing as osm

LAYERS = ("blocks.0", "blocks.1#1", "blocks.1#2")
OTHER = osm.Report(
    "Net at random initialisation, seed 0",
    LAYERS,
    {"cosine": [0.1, 0.1, 0.2], "mad": [0.5, 0.5, 0.5]},
    {"cosine": [0, 0, 0], "mad": [0, 0, 0]},
    {"cosine": [2, 2, 2], "mad": [2, 2, 2]},
    2,
    (3, 5),
)
REPORT = osm.Report(
    "Net",
    LAYERS,
    {"cosine": [0.25, -0.0371, 0.00001], "mad": [0.5, None, 0.0]},
    {"cosine": [0.5, 0.0, 0.0], "mad": [0.0, None, 0.0]},
    {"cosine": [2, 2, 2], "mad": [2, 0, 2]},
    2,
    (3, 5),
    "nodes",
    ("Left out: padding.",),
    OTHER,
)


def test_the_table() -> None:
    lines = str(REPORT).splitlines()
    assert lines[:2] == ["Net: 2 graphs of 3 to 5 nodes", "Left out: padding."]
    rows = [line.split() for line in lines[3:7]]
    assert rows[0] == ["layer", "cosine", "↑", "mad", "↓"]
    assert rows[1] == ["blocks.0", "0.250", "(0.100)", "0.500", "(0.500)"]
    assert rows[2] == ["blocks.1#1", "-0.0371", "(0.100)", "–", "(0.500)"]
    assert rows[3][1] == "1.00e-05"
    assert len({len(line) for line in lines[3:7]}) == 1
    assert "In parentheses: Net at random initialisation, seed 0." in lines


def test_csv_and_dictionary(tmp_path: Path) -> None:
    REPORT.to_csv(tmp_path / "layers.csv")
    with (tmp_path / "layers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == list(LAYERS)
    assert [float(row["cosine"]) for row in rows] == REPORT["cosine"]
    assert rows[1]["mad"] == "" and rows[0]["cosine_std"] == "0.5"
    assert [float(row["cosine_reference"]) for row in rows] == OTHER["cosine"]
    found = json.loads(json.dumps(REPORT.to_dict()))
    assert found["values"] == REPORT.values and found["reference"]["values"] == OTHER.values


def test_the_figure_shows_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a: (figures.append(self), save(self, *a)))
    REPORT.plot(tmp_path / "layers.png")
    assert Image.open(tmp_path / "layers.png").size[0] > 500
    [figure] = figures
    assert [panel.get_title() for panel in figure.axes] == ["cosine", "mad"]
    own, other = figure.axes[1].lines
    assert own.get_linestyle() == "-" and other.get_linestyle() == "--"
    assert math.isnan(own.get_ydata()[1]) and list(other.get_ydata()) == OTHER["mad"]


def test_figures_are_returned_and_drawn_into_given_axes() -> None:
    from matplotlib.figure import Figure

    figure, axes = REPORT.plot()
    assert [ax.get_title() for ax in axes] == ["cosine", "mad"] and figure.axes == axes
    own = Figure().subplots(1, 2)
    assert REPORT.plot(ax=own[0])[1] == [own[0]] and len(own[0].lines) == 2
    assert REPORT.plot(ax=own[1], metrics="mad")[1][0].get_title() == "mad"
    of_two = {"ax": own[0], "metrics": ["cosine", "mad"]}
    for wrong in (
        *({"metrics": ["rank"]}, {"metrics": []}, of_two, {"curves": ["GPT-9"]}),
        *({name: 3} for name in ("path", "ax", "metrics", "curves")),
    ):
        with pytest.raises(osm.InputError, match=f"^({'|'.join(wrong)}|3): "):
            REPORT.plot(**wrong)
    with pytest.raises(osm.InputError, match="^3: "):
        REPORT.to_csv(3)


def test_reference_curves_lie_beside_over_relative_depth_with_ranks_scaled_to_the_bound() -> None:
    report = replace(REPORT, values={"effective_rank": [9.0, 8.0, 7.0]}, reference=None)
    report = replace(report, bounds=(10, 20, 10))
    _, [panel] = report.plot(curves=["GCN, 2 layers", "24 random post-LN layers"])
    gcn, encoder, own = panel.lines
    assert list(gcn.get_xdata()) == [1, 3] and list(own.get_ydata()) == [9, 8, 7]
    assert len(encoder.get_xdata()) == 24
    assert encoder.get_ydata()[0] == pytest.approx(20 * 43.0 / 50, rel=0.01)
    assert len(report.plot(curves=True)[1][0].lines) == 9
    assert "20" in panel.get_ylabel()
    assert report.plot()[1][0].get_ylabel() == "number of directions that the\ntokens take"


def test_a_data_frame_and_two_reports_beside_each_other() -> None:
    frame = REPORT.to_pandas()
    assert [*frame.index] == [*LAYERS] and [*frame["cosine"]] == REPORT["cosine"]
    both = OTHER.compare(REPORT)
    assert both.reference.values == REPORT.values and "0.100 (0.250)" in str(both)
    with pytest.raises(osm.InputError, match="^reference: "):
        REPORT.compare(replace(OTHER, layers=LAYERS[:2]))


def sentences(bounds: tuple[int, ...] = (9,) * 3, **values: list[float]) -> str:
    layers = ("a", "b", "c")
    none = {name: [None] * 3 for name in values}
    return osm.Report("Net", layers, values, none, none, 8, (9, 9), bounds=bounds).summary()


def test_the_summary_is_computed_from_the_numbers() -> None:
    said = sentences(effective_rank=[8.0, 1.2, 1.05], cosine=[0.1, 0.97, 0.99])
    assert "falls from 8.00 after a to 1.05 after c, of at most 9" in said
    assert "From b on, the mean cosine of two tokens is 0.970 or more" in said
    assert 'reference="random"' in said
    said = sentences(
        effective_rank=[8.0, 2.0, 8.0],
        cosine=[0.1, 0.1, 0.1],
        max_norm_ratio=[1.1, 200.0, 1.2],
        largest_token_share=[0.1, 0.93, 0.1],
        effective_rank_without_outliers=[8.0, 7.5, 8.0],
        sample_cosine=[0.1, 0.5, 0.999],
        rankme=[7.0, 3.0, 1.0],
    )
    assert "lies between 2.00 and 8.00" in said and "The largest change is at" in said
    assert "One token carries 93.0 % of the energy after b" in said and "is 7.50 in place" in said
    few = sentences(
        effective_rank=[8.0, 8.0], effective_rank_without_outliers=[8.0, 7.9],
        max_norm_ratio=[1.1, 12.0], largest_token_share=[0.01, 0.03],
    )  # fmt: skip
    assert "carries" not in few  # long, but neither the energy nor the rank is its own
    assert "Tokens of different samples have a mean cosine of 0.999" in said
    assert said.count(". ") < 5 and not sentences(norm=[1.0, 1.0, 1.0])
    own, other = (
        osm.Report("Net", ("a", "b"), {"effective_rank": ranks}, {}, {}, 8, (9, 9))
        for ranks in ([8.0, 2.0], [8.0, 7.0])
    )
    assert "goes from 8.00 to 7.00, where this model ends at 2.00." in own.compare(other).summary()
    assert "ends at 2.00, about the same." in own.compare(own).summary()


def test_ranks_are_compared_where_their_bound_is_the_same() -> None:
    cosine = [0.1, 0.2, 0.3]
    said = sentences((32, 32, 5), effective_rank=[14.0, 13.0, 4.9], cosine=cosine)
    assert "falls" not in said and "change" not in said
    assert "4.90 of at most 5" in said and "0.300" in said
    said = sentences((32, 16, 5), effective_rank=[14.0, 13.0, 4.9], cosine=cosine)
    assert "14.0 of at most 32 after a and 4.90 of at most 5 after c" in said
    for ranks, of in (([8.0, 8.0, 0.8], cosine), ([8.0, 8.0, 0.0], [0.1, 0.1, 0.0])):
        assert "No layer" not in sentences(effective_rank=ranks, cosine=of)
    assert "No layer" not in sentences(effective_rank=[8.0] * 3, cosine=[0.1, 0.96, 0.2])
    assert "No layer" not in sentences(cosine=cosine)  # the rank is not known
    across = {"sample_cosine": [0.1, 0.5, 0.999], "rankme": [7.0, 3.0, 1.0]}
    assert "No layer" not in sentences(effective_rank=[8.0] * 3, cosine=cosine, **across)


def test_an_outlier_and_equal_outputs_are_named() -> None:
    """Threads of users: artifacts of ViTs (dinov2#293), one output for all (transformers#735)."""
    model, ids = bert(), torch.randint(1, 20, (8, 12))
    model.embeddings.word_embeddings.weight.data.zero_()
    report = osm.diagnose(model, input_ids=ids)
    assert report["sample_cosine"][-1] == pytest.approx(report["cosine"][-1], abs=0.2)
    assert report["rankme"][-1] == pytest.approx(1, abs=1e-3)
    assert "little of the input is left" in report.summary()
    net, images = vit(img_size=64), torch.rand(2, 3, 64, 64)
    plain = osm.diagnose(net, images)
    net.blocks[0].register_forward_hook(
        lambda _, __, x: torch.cat([x[:, :10], 50 * x[:, 10:11], x[:, 11:]], 1)
    )
    report = osm.diagnose(net, images)
    assert report["max_norm_ratio"][0] > 40 and "One token carries" in report.summary()
    assert report["effective_rank"][0] < 0.6 * plain["effective_rank"][0]
    without = report["effective_rank_without_outliers"][0]
    assert without == pytest.approx(plain["effective_rank"][0], rel=0.05)


def test_the_table_of_a_notebook_is_escaped() -> None:
    html = REPORT._repr_html_()
    assert html.count("<tr>") == 4 and "blocks.1#2" in html and "–" in html
