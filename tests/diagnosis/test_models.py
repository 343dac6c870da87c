"""Numbers of the diagnosis equal those of activations that are captured by hand."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from diagnosed import IDS, SMALL, T5, bert, captured, encoder
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import oversmoothing as osm
from oversmoothing.metrics import attention, graphs, smoothness

VIT = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 32}


def hf_model(kind: str, head: str = "Model", **options: Any) -> nn.Module:
    return getattr(hf, kind + head)(getattr(hf, f"{kind}Config")(**options))


PIXELS = torch.rand(2, 3, 32, 32)
GPT2 = {"n_embd": 16, "n_head": 2, "n_layer": 3, "vocab_size": 20}
LLAMA = SMALL | {"intermediate_size": 8, "num_key_value_heads": 1, "pad_token_id": None}
Model = tuple[Callable[[], nn.Module], dict[str, Tensor], int, int]
MODELS: dict[str, Model] = {  # model, inputs, prefix tokens, depth
    "vit": (
        partial(timm.create_model, "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=3),
        {"x": PIXELS}, 1, 3),
    "distilled": (
        partial(timm.create_model, "deit_tiny_distilled_patch16_224", img_size=32, depth=2),
        {"x": PIXELS}, 2, 2),
    "bert": (
        partial(hf_model, "Bert", "ForMaskedLM", **SMALL, intermediate_size=8),
        {"input_ids": IDS}, 0, 3),
    "gpt2": (partial(hf_model, "GPT2", **GPT2), {"input_ids": IDS}, 0, 3),
    "llama": (partial(hf_model, "Llama", **LLAMA), {"input_ids": IDS}, 0, 3),
    "hf_vit": (
        partial(hf_model, "ViT", "ForImageClassification", **VIT, intermediate_size=8),
        {"pixel_values": PIXELS}, 1, 2),
    "dinov2_registers": (
        partial(hf_model, "Dinov2WithRegisters", **VIT, patch_size=8),
        {"pixel_values": PIXELS}, 5, 2),
    "radio": (
        partial(hf_model, "Radio", **VIT, intermediate_size=8, patch_size=8),
        {"pixel_values": PIXELS}, 10, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_tokens_of_every_library(name: str) -> None:
    build, kwargs, prefix, depth = MODELS[name]
    torch.manual_seed(0)
    model = build()
    report = osm.diagnose(model, **kwargs)
    assert len(report.layers) == depth
    tokens = [x[:, prefix:] for x in captured(model, report.layers, **kwargs)]
    measures = {
        "cosine": smoothness.cosine,
        "effective_rank": smoothness.effective_rank,
        "mean_share": smoothness.mean_share,
        "norm": lambda x: x.double().norm(dim=-1).mean(dim=-1),
    }
    for metric, measured in measures.items():
        expected = [measured(x) for x in tokens]
        assert report[metric] == pytest.approx([x.mean().item() for x in expected], rel=1e-6)
        assert report.std[metric] == pytest.approx(
            [x.std(correction=0).item() for x in expected], rel=1e-5, abs=1e-12
        )
    assert report.tokens[0] == tokens[0].shape[1]
    assert len([x for x in report["attention_similarity"] if x is not None]) == depth


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_attention_maps_equal_those_that_transformers_returns(name: str) -> None:
    """With padding; fused attention, and attention that forms the map."""
    build, kwargs, *_ = MODELS[name]
    torch.manual_seed(0)
    model = build().eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)  # maps that differ from uniform ones
    mask = torch.ones_like(IDS)
    mask[0, 4:] = 0
    kwargs = {**kwargs, "attention_mask": mask}
    fused = osm.diagnose(model, **kwargs)["attention_similarity"]
    model.set_attn_implementation("eager")
    assert osm.diagnose(model, **kwargs)["attention_similarity"] == pytest.approx(fused, rel=1e-4)
    with torch.no_grad():
        maps = model(**kwargs, output_attentions=True).attentions
    expected = [
        sum(attention.attention_similarity(A[b : b + 1, :, mask[b] == 1]).item() for b in range(3))
        / 3
        for A in maps
    ]
    assert fused == pytest.approx(expected, rel=1e-4)


def test_the_nodes_of_a_graph() -> None:
    torch.manual_seed(0)
    model = pyg.GCN(5, 8, 4, 3)
    x, edges = torch.randn(6, 5), torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    report = osm.diagnose(model, x, edges)
    for i, hidden in enumerate(captured(model, report.layers, x, edges)):
        energy = graphs.dirichlet_energy(hidden, edges).item()
        assert report["dirichlet_energy"][i] == pytest.approx(energy)
        mad = graphs.mad(hidden, edges).item()
        assert report["mad"][i] == pytest.approx(mad)
    assert report.unit == "nodes" and len(report.layers) == 4


def test_isolated_nodes_are_counted_in_all_batches() -> None:
    graphs = [Data(x=torch.randn(4, 5), edge_index=torch.tensor([[0, 1], [1, 0]]))] * 4
    for size in (1, 2, 3, 4):
        report = osm.diagnose(pyg.GCN(5, 8, 2), batches=DataLoader(graphs, batch_size=size))
        assert report.notes == ("Left out: 8 nodes without neighbours, of MAD only.",)
        assert report.samples == 4


def test_one_layer_that_is_called_several_times_has_a_row_a_call() -> None:
    config = hf.AlbertConfig(**SMALL, embedding_size=8, intermediate_size=8)
    report = osm.diagnose(hf.AlbertModel(config), input_ids=IDS)
    assert len(report.layers) == 3 and report.layers[2].endswith("#3")


def cosines(states: list[Tensor], kept: list[Tensor]) -> list[float]:
    """Means over sentences, of the tokens that their masks keep."""
    found = [[smoothness.cosine(x[k]) for x, k in zip(*of)] for of in zip(states, kept)]
    return [torch.stack(values).mean().item() for values in found]


def test_encoder_and_decoder_have_masks_of_their_own() -> None:
    torch.manual_seed(0)
    model, mask = hf.T5Model(hf.T5Config(**T5)).eval(), torch.ones_like(IDS)
    mask[:, 5:] = 0
    inputs = {"input_ids": IDS, "attention_mask": mask, "decoder_input_ids": IDS}
    report = osm.diagnose(model, **inputs)
    states = captured(model, report.layers, **inputs)
    kept = [mask == 1] * 2 + [mask > -1] * 2
    assert report["cosine"] == pytest.approx(cosines(states, kept), rel=1e-6)


def test_a_dictionary_of_masks_is_made_of_the_mask_of_the_model() -> None:
    """As in Gemma 3, whose outer model passes one mask for each kind of attention."""
    text = {**LLAMA, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
    vision = {**VIT, "patch_size": 8, "intermediate_size": 8}
    text |= {"num_hidden_layers": 4}
    config = hf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    torch.manual_seed(0)
    model, mask = hf.Gemma3Model(config), torch.ones_like(IDS)
    mask[:, 5:] = 0
    padded = osm.diagnose(model, input_ids=IDS, attention_mask=mask)
    alone = osm.diagnose(model, input_ids=IDS[:, :5])
    assert padded.tokens == (5, 5) and padded["norm"] == pytest.approx(alone["norm"], rel=1e-5)


def test_masks_of_torch_transformer() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 2, 8, batch_first=True).eval()
    model.encoder.use_nested_tensor = False  # for the tokens that are captured by hand
    source, target = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    hidden = torch.tensor([[False] * 4, [False] * 2 + [True] * 2])
    masks = {"src_key_padding_mask": padding, "tgt_key_padding_mask": hidden}
    layers = ["encoder.layers.0", "decoder.layers.*"]
    report = osm.diagnose(model, source, target, **masks, layers=layers)
    states = captured(model, report.layers, source, target, **masks)
    kept = [~padding, ~hidden, ~hidden]
    assert report["cosine"] == pytest.approx(cosines(states, kept), rel=1e-6)


def test_feature_maps_of_convolutions_and_channels_last() -> None:
    images = torch.rand(1, 3, 64, 64)
    resnet = timm.create_model("resnet18")
    report = osm.diagnose(resnet, images)
    assert report.layers[0] == "layer1.0" and report.tokens == (256, 256)
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=64, window_size=2)
    blocks = osm.diagnose(swin, images, layers="layers.*.blocks.*", layout="BHWC")
    assert len(blocks.layers) == 12 and blocks.tokens == (256, 256)
    assert osm.diagnose(swin, images, layers="layers.*.blocks.*").values == blocks.values


def test_a_stage_with_one_token_and_a_layer_that_is_not_called_leave_the_others() -> None:
    swin = partial(timm.create_model, "swin_tiny_patch4_window7_224", img_size=32, window_size=2)
    model, images = swin(), torch.rand(8, 3, 32, 32)  # as many samples as are measured across
    report = osm.diagnose(model, images, layers="layers.*", reference="random")
    before = osm.diagnose(model, images, layers=["layers.0", "layers.1", "layers.2"])
    assert all(report[metric][:3] == values for metric, values in before.values.items())
    assert all(values[3] is None for values in report.values.values()) and "rankme" in report.values
    assert "Not measured: layers.3, with fewer than two tokens" in " ".join(report.notes)
    gcn = pyg.GCN(4, 8, 3, norm="PairNorm").eval()
    inputs = torch.randn(5, 4), torch.tensor([[0, 1], [1, 0]])
    report = osm.diagnose(gcn, *inputs, layers="norms.*")
    assert report.layers == ("norms.0", "norms.1") and "norms.2, which" in " ".join(report.notes)
    assert report["norm"] == osm.diagnose(gcn, *inputs, layers=["norms.0", "norms.1"])["norm"]


def test_pairs_of_tokens_have_a_cosine_of_their_own() -> None:
    torch.manual_seed(0)
    build, kwargs, *_ = MODELS["distilled"]
    model = build()
    report = osm.diagnose(model, **kwargs, pairs={"cls-dist": (0, 1), "cls-last": (0, -1)})
    for i, x in enumerate(captured(model, report.layers, **kwargs)):
        for name, other in (("cls-dist", 1), ("cls-last", -1)):
            expected = torch.cosine_similarity(x[:, 0].double(), x[:, other].double(), dim=-1)
            assert report[name][i] == pytest.approx(expected.mean().item())
            assert report.std[name][i] == pytest.approx(expected.std(correction=0).item())
    assert "cls-last" in str(report) and report.tokens == (4, 4)
    only = osm.diagnose(model, **kwargs, metrics="norm", pairs={"cls-dist": (0, 1)})
    assert only.values == {name: report[name] for name in ("norm", "cls-dist")}


def test_a_pair_with_padding_has_no_cosine() -> None:
    words, mask = torch.randint(1, 20, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    model, pairs = bert(), {"ends": (0, -1)}
    report = osm.diagnose(model, words, attention_mask=mask, metrics="norm", pairs=pairs)
    alone = osm.diagnose(model, words[:1], metrics="norm", pairs=pairs)
    assert report["ends"] == pytest.approx(alone["ends"]) and {*report.counts["ends"]} == {1}
    assert "ends: not defined in 1 of 2 samples" in " ".join(report.notes)


def test_models_without_attention_maps_and_with_a_sink() -> None:
    """Mamba has blocks and no maps; rows of gpt-oss' maps lack what goes to the sink."""
    torch.manual_seed(0)
    mamba = hf_model("Mamba", **SMALL, state_size=4)
    report = osm.diagnose(mamba, input_ids=IDS)
    tokens = captured(mamba, report.layers, input_ids=IDS)
    expected = [smoothness.effective_rank(x).mean().item() for x in tokens]
    assert report["effective_rank"] == pytest.approx(expected) and len(expected) == 3
    assert len(report.notes) == 1 and report.notes[0].startswith("No attention maps")
    sizes = {**LLAMA, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
    model = hf_model("GptOss", **sizes).eval()
    report = osm.diagnose(model, input_ids=IDS)
    with torch.no_grad():
        maps = model(input_ids=IDS, output_attentions=True).attentions
    assert all(A.sum(dim=-1).max() < 1 for A in maps) and "sink" in " ".join(report.notes)
    expected = [attention.attention_similarity(A).mean().item() for A in maps]
    assert report["attention_similarity"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "layout"),
    [("pit_ti_distilled_224", "BCHW"), ("volo_d1_224", "BHWC"), ("nest_tiny", "BCHW"),
     ("samvit_base_patch16", "BHWC"), ("swinv2_cr_tiny_224", "BCHW")],
)  # fmt: skip
def test_layouts_that_the_widths_of_a_layer_show(name: str, layout: str) -> None:
    model, images = timm.create_model(name, img_size=64), torch.rand(1, 3, 64, 64)
    options: dict[str, Any] = {"metrics": ["cosine", "norm"]}
    report = osm.diagnose(model, images, **options)  # the last stage of PiT has 2 × 2 and 2 tokens
    assert report.values == osm.diagnose(model, images, **options, layout=layout).values


def test_compiled_parts_give_the_same_numbers() -> None:
    model, x = encoder(), torch.randn(2, 5, 16)
    expected = osm.diagnose(model, x)
    for i, layer in enumerate(model.layers):
        model.layers[i] = torch.compile(layer)
    assert osm.diagnose(model, x).values == expected.values
    assert osm.diagnose(torch.compile(model), x).values == expected.values
    assert osm.diagnose(nn.DataParallel(model), x).layers == expected.layers
    beside = osm.diagnose(encoder(), x, layers="layers.*", reference=model)
    assert beside.reference.values == beside.values


def test_deit_equals_the_committed_measurement(data_root: Path) -> None:
    """Compares with our evaluator on four of the 64 images, and with the committed numbers."""
    from oversmoothing.lab.arguments import build
    from oversmoothing.lab.launch.config import compose_config
    from oversmoothing.lab.launch.execute import parts
    from oversmoothing.lab.tasks.classification import Evaluator

    words = ["experiment=cls_eval", f"paths.data={data_root}", "aggregator.gamma=-1"]
    config = compose_config([*words, "task.evaluation.layer_images=4"])
    task, data = build(config.task), build(config.data)
    backbone = task.network(parts(config, data), [0], torch.device("cpu"))
    evaluator = Evaluator(data, task.evaluation, torch.device("cpu"))
    report = osm.diagnose(backbone, torch.cat(list(evaluator._images())))
    layers = evaluator.layers(backbone)
    for metric in ("cosine", "effective_rank", "attention_similarity"):
        assert report[metric] == pytest.approx(layers[metric], rel=1e-5), metric
    committed = Path(__file__).parents[2] / "results/cls_pretrained.jsonl"
    rows = [json.loads(line) for line in committed.read_text().splitlines()]
    last = [row["seeds"]["0"]["layers_before"]["cosine"][-1] for row in rows]
    assert min(abs(report["cosine"][-1] - value) for value in last) < 0.05
