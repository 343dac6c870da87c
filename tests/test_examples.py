"""Every example runs, and measures what is committed where its settings are the same."""

import csv
import re
from pathlib import Path

import pytest
from in_process import ROOT, here

KEYS = {"graph", "depth", "seed", "network", "model", "block", "layer", "method", "epoch", "gamma"}
KEYS |= {"weights", "tokens", "start"}
EXAMPLES = {  # words: what it needs, its file, the part that follows from the settings alone
    "diagnose_deit.py --models ContraNorm": ("timm", "deit.csv", ""),
    "diagnose_gcn.py --graphs cora --depths 2 --seeds 0": ("torch_geometric", "gcn_depth.csv", ""),
    "pyg_cora.py --methods none --depth 2 --seeds 0": ("torch_geometric", "pyg_cora.csv", None),
    "deep_gcn.py --methods initial_residual --depth 4 --epochs 60 --seeds 0": (
        "torch_geometric", "deep_gcn.csv", None,
    ),
    "deep_encoder.py --methods centered --depth 2 --rates 3e-3 --seeds 0 --steps 100": (
        "sklearn", "deep_encoder_2.csv", None,
    ),
    "collapse.py": ("torch", "collapse.csv", ""),
    "real_models.py smollm2": ("gguf", "smollm2.csv", ""),
    "smollm2.py lengths --tokens 32": ("gguf", "smollm2_lengths.csv", ""),
    "timm_digits.py --epochs 1 --seeds 0": ("timm", "timm_digits.csv", ""),
    "train_sst2.py --gammas 0 --steps 1 --seeds 0": (
        "accelerate", "train_sst2_layers.csv", "γ = 0, random",
    ),
    "causal_lm.py --gammas 0 --steps 1 --seeds 0": (
        "transformers", "causal_lm_6_layers.csv", "γ = 0, random",
    ),
}  # fmt: skip


def test_every_example_is_run() -> None:
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")} - {"panels.py"}
    assert scripts == {words.split()[0] for words in EXAMPLES}


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_measures_what_is_committed(
    words: str, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, name, part = EXAMPLES[words]
    pytest.importorskip(package)
    if "deit" in words and not (data_root / "weights/deit_tiny_patch16_224.timm.pth").exists():
        pytest.skip("no weights")
    if (
        "glue" in (ROOT / "examples" / words.split()[0]).read_text()
        and not (data_root / "glue").exists()
    ):
        pytest.skip("no GLUE")
    monkeypatch.setenv("DATA_ROOT", str(data_root))
    monkeypatch.chdir(tmp_path)
    assert not here(["examples/" + words.split()[0], *words.split()[1:]], monkeypatch)
    found = lines(tmp_path / "outputs/diagnose" / name)
    if part is None:
        assert found and all(float(numbers[-1]) > 70 for numbers in found.values())
        return
    committed = lines(ROOT / "results/diagnose" / name)
    compared = [place for place in found if part in place or not part]
    assert compared
    for place in compared:
        for value, expected in zip(found[place], committed[place], strict=True):
            assert float(value or 0) == pytest.approx(float(expected or 0), 1e-4, 1e-6), place


def test_figures_can_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.chdir(tmp_path)
    assert not here(["examples/panels.py"], monkeypatch)
    drawn = {path.name for path in (tmp_path / "outputs/diagnose").iterdir()}
    assert len(drawn) == 11
    assert drawn <= {path.name for path in (ROOT / "results/diagnose").glob("*.png")}


PAGES = {"real_models.md": {"collapse", "gcn32", "deit_photos", "minilm", "smollm2"}}
PAGES |= {"diagnose.md": {"deit_photos"}}


@pytest.mark.parametrize("page", PAGES)
def test_printed_reports_on_pages_are_the_recorded_ones(page: str) -> None:
    """Every cell of a table, and every quoted summary, is that of a file in results/diagnose."""
    text = (ROOT / "docs/guides" / page).read_text(encoding="utf-8")
    tables = re.findall(r"^```text\n(layer .*?)```", text, re.M | re.S)
    assert len(tables) == len(PAGES[page])
    of = {name: recorded(name) for name in PAGES[page]}
    for table in tables:
        head, *rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
        named = [name.rstrip(" ↑↓") for name in head[1:]]
        assert any(
            all(row[1:] == [of[name].get((row[0], metric)) for metric in named] for row in rows)
            for name in of
        ), table
    summaries = re.findall(r"^```text\n(The .*?)```", text, re.M | re.S)
    found = {" ".join(quote.split()) for quote in summaries}
    texts = {(ROOT / f"results/diagnose/{name}.txt").read_text("utf-8") for name in of}
    assert found <= {text.strip().splitlines()[-1] for text in texts}


def recorded(name: str) -> dict[tuple[str, str], str]:
    """The printed cells of a report by layer and metric."""
    path = ROOT / f"results/diagnose/{name}.txt"
    rows = [re.split(r"\s{2,}", line.strip()) for line in path.read_text("utf-8").splitlines()]
    start = next(i for i, row in enumerate(rows) if row[0] == "layer")
    shown = [name.rstrip(" ↑↓") for name in rows[start][1:]]
    with path.with_suffix(".csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    cells = {
        (line["layer"], metric): cell(value, line.get(f"{metric}_reference"))
        for line in lines
        for metric, value in line.items()
    }
    for row in rows[start + 1 : start + 1 + len(lines)]:
        assert row[1:] == [cells[row[0], metric] for metric in shown]
    return cells


def cell(value: str, reference: str | None) -> str:
    if not re.fullmatch(r"-?[\d.]+(e-?\d+)?", value):
        return value
    own, beside = (f"{float(x):#.3g}".rstrip(".") if x else "" for x in (value, reference))
    return f"{own} ({beside})" if beside else own


def lines(path: Path) -> dict[tuple[str, ...], list[str]]:
    """The numbers of every line of a CSV by its names and settings."""
    with path.open(encoding="utf-8") as file:
        return {
            tuple(value for key, value in line.items() if key in KEYS): [
                value for key, value in line.items() if key not in KEYS
            ]
            for line in csv.DictReader(file)
        }
