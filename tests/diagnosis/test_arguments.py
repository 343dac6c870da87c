"""Arguments of diagnose: functions as metrics, wrong types, and names that the model has."""

from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oversmoothing as osm

X, NODES, IMAGES = torch.randn(2, 5, 8), torch.randn(4, 8), torch.rand(2, 3, 32, 32)
EDGES = torch.tensor([[0, 1], [1, 0]])


class Blocks(nn.Module):
    """Linear layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1](self.blocks[0](x))


class OfBatch(Blocks):
    def forward(self, batch: Any) -> Tensor:
        return super().forward(batch["x"] if isinstance(batch, dict) else batch)


def vit() -> nn.Module:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", depth=2, **sizes)


def test_functions_of_tokens_are_metrics() -> None:
    def first(x: Tensor) -> Tensor:
        return x[:, 0, 0].float()

    model = Blocks()
    report = osm.diagnose(model, X, metrics=[first, "norm", osm.metrics.token_variance])
    assert list(report.values) == ["norm", "first", "token_variance"] and "first" in str(report)
    out = model(X)
    assert report["first"][1] == pytest.approx(out[:, 0, 0].mean().item())
    expected = osm.metrics.token_variance(out)
    assert report["token_variance"][1] == pytest.approx(expected.mean().item())
    assert report.std["token_variance"][1] == pytest.approx(expected.std(correction=0).item())
    assert osm.diagnose(model, X, metrics=first).values == {"first": report["first"]}


def test_a_batch_that_is_the_argument_of_the_model() -> None:
    model = OfBatch()
    expected = osm.diagnose(model, X).values
    assert osm.diagnose(model, batch=X).values == expected
    assert osm.diagnose(model, batch={"x": X}).values == expected


def test_a_model_that_accelerate_offloads() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = vit()
    expected = osm.diagnose(model, IMAGES)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert osm.diagnose(model, IMAGES).values == expected.values
    assert all(parameter.is_meta for parameter in model.parameters())


WRONG: dict[str, list] = {
    "layers": [5, [None]],
    "mask": [5, np.ones((2, 17))],
    "edges": [5],
    "batch": ["x", ...],
    "prefix": ["x", True, -1],
    "seed": ["a", 1.5, None, 2**70],
    "metrics": [5, [None], [lambda x: 1], [lambda x: x], [lambda x: 1, lambda x: 2]],
    "layout": [5],
    "reference": [5],
    "batches": [5, [None], [5], ["x"], [IMAGES.numpy()], IMAGES.numpy(), IMAGES, [IMAGES[0]]],
    "inputs": [None, 5, "x", [*IMAGES], IMAGES.numpy(), IMAGES[0], iter([IMAGES]), IMAGES[:0]],
}
WRONG["inputs"] += [DataLoader(TensorDataset(IMAGES)), TensorDataset(IMAGES)]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    model = vit()
    for value in WRONG[name]:
        inputs = () if name == "batches" else (value if name == "inputs" else IMAGES,)
        options = {} if name == "inputs" else {name: value}
        with pytest.raises(osm.InputError, match=f"^{name}: ") as refused:
            osm.diagnose(model, *inputs, **options)
        assert "\n" not in str(refused.value)


def test_errors_of_a_model_with_usual_inputs_are_its_own() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        osm.diagnose(Blocks(), X[..., :7])


REFUSED = {
    "meta": lambda: (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to("meta"), (X,), "model"),
    "no forward": lambda: (nn.ModuleList([Blocks(), Blocks()]), (X,), "model"),
    "one layer": lambda: (nn.Linear(8, 8), (X,), "layers"),
    "dense layers of two graphs": lambda: (
        pyg.models.SGFormer(8, 8, 3), (NODES, EDGES, torch.tensor([0, 0, 1, 1])), "layers"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_the_fault_is_named(case: str) -> None:
    model, inputs, key = REFUSED[case]()
    with pytest.raises(osm.InputError, match=f"^{key}: ") as refused:
        osm.diagnose(model, *inputs)
    assert "[]" not in str(refused.value)


def test_blocks_that_fsdp_hides(tmp_path) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    own = {"init_method": f"file://{tmp_path}/rendezvous", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **own)
    try:
        model = FullyShardedDataParallel(Blocks(), device_id=torch.device("cpu"))
        with pytest.raises(osm.InputError, match=r"^layers: .*_fsdp_wrapped_module\.blocks"):
            osm.diagnose(model, X)
        assert osm.diagnose(model, X, layers="_fsdp_wrapped_module.blocks.*").samples == 2
    finally:
        torch.distributed.destroy_process_group()


def test_misspelt_options_are_refused() -> None:
    class Open(Blocks):
        def forward(self, x: Tensor, **_: Any) -> Tensor:
            return super().forward(x)

    assert osm.diagnose(Open(), X, output_attentions=False)
    for model, name, close in (
        (Open(), "metric", "metrics"),
        (Open(), "refrence", "reference"),
        (Blocks(), "layer", "layers"),
    ):
        with pytest.raises(osm.InputError, match=f"^{name}: no option .*did you mean '{close}'"):
            osm.diagnose(model, X, **{name: None})


class Masked(Blocks):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


class WithEdges(Blocks):
    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return super().forward(x)


def test_an_option_that_is_an_argument_of_the_model_too_is_named() -> None:
    mask = torch.ones(2, 5, dtype=torch.bool)
    note = "Not passed to Masked: mask; give the model's own by its position."
    assert note in osm.diagnose(Masked(), X, mask=mask).notes
    assert note not in osm.diagnose(Masked(), X, mask, mask=mask).notes
    with pytest.raises(osm.InputError, match=r"^edges: WithEdges has an argument of this name"):
        osm.diagnose(WithEdges(), NODES, edges=EDGES)


def test_a_dictionary_of_arguments_is_answered_with_keywords() -> None:
    config = hf.BertConfig(
        hidden_size=8, num_attention_heads=2, num_hidden_layers=2, intermediate_size=8
    )
    with pytest.raises(
        osm.InputError, match=r"^inputs: .*BertModel.* diagnose\(model, \*\*inputs\)"
    ):
        osm.diagnose(hf.BertModel(config), {"input_ids": torch.ones(1, 3, dtype=torch.long)})


def test_a_model_may_expect_a_dictionary() -> None:
    class OfDictionary(Blocks):
        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return super().forward(x["x"])

    assert osm.diagnose(OfDictionary(), {"x": X}).samples == 2
