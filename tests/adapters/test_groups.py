"""Groups last as long as their call, and as gradient checkpointing repeats parts or all of it."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
import transformers as hf
from applied_models import EDGES, IMAGE, PADDED, WORDS, bert, made, vit
from torch import Tensor, nn
from torch.export import Dim
from torch.utils.checkpoint import checkpoint
from torchvision.models.feature_extraction import create_feature_extractor
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionTransformer

import oversmoothing as osm
from oversmoothing.adapters.calls import Sentences
from oversmoothing.adapters.sites import Chain
from oversmoothing.aggregators.base import PLAIN, After, Aggregator, Context, Inside
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm

BATCH = torch.tensor([0, 0, 0, 1, 1, 0])
reentrant = pytest.mark.parametrize("reentrant", [False, True])


class Stack(nn.Module):
    """Convolutions, each of them checkpointed if a function for that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.GCNConv(4, 4) for _ in range(3))
        self.repeat = lambda conv, *args: conv(*args)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = self.repeat(conv, x, edge_index)
        return x


@reentrant
@pytest.mark.parametrize("training", [False, True])
def test_parts_of_a_call_have_its_groups(reentrant: bool, training: bool) -> None:
    """Also in evaluation mode, since gradients may flow through a frozen network."""
    torch.manual_seed(0)
    plain = osm.apply(Stack().double().train(training), "pairnorm", blocks=[0, 1, 2])
    repeated, gradients = copy.deepcopy(plain), []
    repeated.repeat = partial(checkpoint, use_reentrant=reentrant)
    for model in (plain, repeated):
        x = torch.linspace(-1, 2, 24).double().view(6, 4).requires_grad_()
        (model(x, EDGES, BATCH) ** 3).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@reentrant
def test_a_whole_call_has_its_own_groups(reentrant: bool) -> None:
    torch.manual_seed(0)
    model = osm.apply(bert().double().eval(), "pairnorm").train()
    for module in model.modules():
        module.p = 0.0  # of dropout
    words = torch.randn(2, 7, 16).double()

    def gradient(repeat: bool, mask: Tensor) -> Tensor:
        x = words.clone().requires_grad_()
        call = lambda x: model(inputs_embeds=x, attention_mask=mask)[0]  # noqa: E731
        out = checkpoint(call, x, use_reentrant=reentrant) if repeat else call(x)
        (out**3).sum().backward()
        return x.grad

    for mask in (PADDED, PADDED.flip(0)):
        torch.testing.assert_close(gradient(True, mask), gradient(False, mask))


@torch.no_grad()
def test_a_layer_called_alone_has_no_mask_of_an_earlier_call() -> None:
    model, x = (
        osm.apply(bert().double().eval(), osm.PairNorm),
        torch.randn(*WORDS.shape, 16).double(),
    )
    layer = model.encoder.layer[0]
    before = layer(x)
    model(WORDS, attention_mask=PADDED)
    torch.testing.assert_close(layer(x), before, rtol=0, atol=1e-10)
    with pytest.raises(IndexError):
        model(WORDS + 1000, attention_mask=PADDED)  # there are not so many words
    torch.testing.assert_close(layer(x), before, rtol=0, atol=1e-10)


N, C = 12, 16
READERS = [
    partial(Centered, -0.5),
    partial(Centered, -0.5, prefix_in_mean=False),
    *(partial(ContraNorm, dim, dual=dual) for dim in (C, 4) for dual in (False, True)),
    partial(ContraNormD, C),
    *(partial(PairNorm, mode) for mode in ("PN", "PN-SI", "PN-SCS")),
    partial(LayerNorm, C),
]


@pytest.mark.parametrize("make", READERS)
def test_one_mask_is_as_one_call_for_each_length(make, monkeypatch) -> None:
    torch.manual_seed(0)
    aggregator: Aggregator = make().double()
    width = 4 if make.args[:1] == (4,) else C  # above and below the number of tokens
    mask = torch.arange(N) < torch.tensor([5, 9, 3, 9, 12])[:, None]
    mask[1] = mask[1].flip(0)  # padding before the tokens
    x = torch.randn(5, N, width, dtype=torch.float64, requires_grad=True)
    mixed = x[:, None].expand(-1, 3, -1, -1)
    inputs = (mixed, 2 * mixed) if isinstance(aggregator, Inside) else (x,)
    upstream = torch.randn_like(inputs[0])

    def computed() -> tuple[torch.Tensor, torch.Tensor]:
        out = Sentences(mask).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
        return out, *torch.autograd.grad((out * upstream).sum(), x, retain_graph=True)

    at_once = computed()
    calls = []
    aggregator.register_forward_hook(lambda *_: calls.append(1))
    computed()
    assert len(calls) == 1
    monkeypatch.setattr(aggregator, "reads_mask", False)
    for found, expected in zip(at_once, computed(), strict=True):
        torch.testing.assert_close(found, expected)
    assert len(calls) == 1 + 4  # four lengths


@pytest.mark.parametrize("reads_mask", [True, False])
@torch.no_grad()
def test_skip_connections_beside_a_mean_add_the_same_word(reads_mask: bool, monkeypatch) -> None:
    """Also where sentences are aligned or taken apart for the mean."""
    monkeypatch.setattr(PairNorm, "reads_mask", reads_mask)
    for methods in (["pairnorm", "residual"], ["initial_residual", "pairnorm"]):
        torch.manual_seed(0)
        model = osm.apply(bert().double().eval(), methods, where="encoder.layer.*.attention.output")
        words = torch.randn(2, 7, 16).double()
        together = model(inputs_embeds=words, attention_mask=PADDED)[0]
        for i, own in enumerate(PADDED.bool()):
            places = own.nonzero()[:, 0][None]
            alone = model(inputs_embeds=words[i : i + 1, own], position_ids=places)[0]
            torch.testing.assert_close(together[i, own], alone[0])


class Maximum(After):
    """Knows nothing of masks, and needs a token."""

    def forward(self, x: torch.Tensor, context: Context = PLAIN) -> torch.Tensor:
        return x - x.amax(dim=-2, keepdim=True)


@pytest.mark.parametrize("make", [*READERS, partial(Maximum)])
def test_a_sentence_of_padding_alone_changes_no_gradient(make) -> None:
    """Its padding keeps its values, and other sentences have the same tokens as without it."""
    torch.manual_seed(0)
    aggregator: Aggregator = make().double()
    x = torch.randn(3, N, 4 if make.args[:1] == (4,) else C, dtype=torch.float64)
    mask = torch.arange(N) < torch.tensor([5, 0, 9])[:, None]
    upstream = torch.randn_like(x)

    def computed(rows: list[int]) -> torch.Tensor:
        some = x[rows].requires_grad_()
        inputs = (some, 2 * some) if isinstance(aggregator, Inside) else (some,)
        out = Sentences(mask[rows]).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
        return torch.stack([out, *torch.autograd.grad(out, some, upstream[rows])])

    found = computed([0, 1, 2])
    torch.testing.assert_close(found[:, [0, 2]], computed([0, 2]))
    assert torch.equal(found[:, 1], torch.stack([x[1], upstream[1]]))
    with torch.no_grad():  # some aggregators then overwrite their input
        inputs = (x.clone(), 2 * x) if isinstance(aggregator, Inside) else (x.clone(),)
        again = Sentences(mask).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
    assert torch.equal(again, found[0])


VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION |= {"intermediate_size": 32}
OPTIONS = {"centered": {"gamma": -1.0}, "contranorm": {"scale": 0.5}, "pairnorm": {}}
REAL, ALL = 12, 16  # patches of the image, and with padding
Case = tuple[nn.Module, Callable[[float], dict[str, Any]]]


def siglip() -> Case:
    """Returns a model, and its inputs with a value in the padding."""
    model = hf.Siglip2VisionModel(hf.Siglip2VisionConfig(**VISION, patch_size=4, num_patches=ALL))
    image, mask = torch.randn(1, REAL, 48), torch.arange(ALL)[None] < REAL
    shapes = torch.tensor([[3, 4]])
    return model, lambda value: {
        "pixel_values": F.pad(image, (0, 0, 0, ALL - REAL), value=value),
        "pixel_attention_mask": mask.long(),
        "spatial_shapes": shapes,
    }


def idefics() -> Case:
    model = Idefics3VisionTransformer(
        hf.Idefics3VisionConfig(**VISION, patch_size=8, image_size=32)
    )
    image, mask = torch.randn(1, 3, 24, 32), torch.arange(4)[None, :, None] < 3
    return model, lambda value: {
        "pixel_values": F.pad(image, (0, 0, 0, 8), value=value),
        "patch_attention_mask": mask.expand(1, 4, 4).clone(),
    }


def naflex() -> Case:
    size = {"embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 0}
    model = timm.create_model("naflexvit_base_patch16_gap", **size)
    patches = torch.randn(1, REAL, 768)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4))[None]
    valid = torch.arange(ALL)[None] < REAL
    return model, lambda value: {
        "x": {
            "patches": F.pad(patches, (0, 0, 0, ALL - REAL), value=value),
            "patch_coord": places,
            "patch_valid": valid,
        }
    }


class Wrapped(nn.Module):
    """Has a model of timm, and does not name its arguments."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Any) -> Tensor:
        return self.backbone(x)


def wrapped() -> Case:
    model, inputs = naflex()
    return Wrapped(model), inputs


def features(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    output = model(**inputs)
    return output if isinstance(output, Tensor) else output.last_hidden_state[:, :REAL]


@pytest.mark.parametrize("case", [siglip, idefics, naflex, wrapped])
@torch.no_grad()
def test_what_is_in_the_padding_changes_nothing(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, inputs = case()
    for name, options in OPTIONS.items():
        osm.apply(model.eval(), name, **options)
        zeros, nines = (features(model, inputs(value)) for value in (0.0, 9.0))
        torch.testing.assert_close(zeros, nines)
        osm.remove(model)
    report = osm.diagnose(model, **inputs(9.0))
    assert report.tokens == (REAL, REAL) and "Left out: padding." in report.notes
    assert report.values == osm.diagnose(model, **inputs(0.0)).values


@torch.no_grad()
def test_several_images_in_a_sequence() -> None:
    torch.manual_seed(0)
    config = hf.PixtralVisionConfig(**VISION, patch_size=8, image_size=32)
    model = hf.PixtralVisionModel(config).eval()
    images = torch.randn(2, 3, 32, 32)
    run = partial(features, model)
    both = {"pixel_values": images, "image_sizes": torch.tensor([[32, 32]] * 2)}
    one = {"pixel_values": images[:1], "image_sizes": torch.tensor([[32, 32]])}
    osm.apply(model, "centered")
    torch.testing.assert_close(run(both), run(one)[:, :REAL])
    osm.apply(osm.remove(model), "layernorm")
    torch.testing.assert_close(run(both), run(one)[:, :REAL])
    osm.apply(osm.remove(model), "pairnorm")
    run(one)
    with pytest.raises(osm.InputError, match="^model: "):
        run(both)


PLACES = [
    ("centered", None),
    (["centered", "contranorm"], None),
    ("layernorm", "norms"),
    ("contranorm", "blocks.*.mlp"),
    ("em", None),
]
WHOLE = torch.ones_like(WORDS)
MORE = torch.randint(1, 50, (3, 9), generator=torch.Generator().manual_seed(1))  # other sizes


class Hidden(nn.Module):
    """Returns the last hidden state alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=words, attention_mask=mask).last_hidden_state


def _check(recorded, name: str) -> None:
    """Compares with a model that is not recorded, for padding on either side and other sizes."""
    model = Hidden(made(bert, name))
    ragged = torch.arange(9) < torch.tensor([[9], [2], [6]])
    given = [*((WORDS, mask) for mask in (PADDED, PADDED.flip(0), WHOLE)), (MORE, ragged.long())]
    for words, mask in given:
        with torch.no_grad():
            torch.testing.assert_close(recorded(words, mask), model(words, mask))


@pytest.mark.filterwarnings("ignore")  # the tracer's
@pytest.mark.parametrize("mask", [WHOLE, PADDED])
@pytest.mark.parametrize("name", ["pairnorm", "contranorm", "batchnorm", "centered"])
def test_a_trace_follows_the_mask(name: str, mask: Tensor) -> None:
    _check(torch.jit.trace(Hidden(made(bert, name)), (WORDS, mask), strict=False), name)


@pytest.mark.parametrize("name", ["pairnorm", "contranorm", "batchnorm", "layernorm", "centered"])
def test_an_exported_and_a_compiled_model_follow_the_mask(name: str) -> None:
    torch.compiler.reset()
    model, sizes = Hidden(made(bert, name)), ({0: Dim.AUTO, 1: Dim.AUTO},) * 2
    _check(torch.export.export(model, (WORDS, WHOLE), dynamic_shapes=sizes).module(), name)
    _check(torch.compile(model, fullgraph=True, backend="eager"), name)


@pytest.mark.parametrize(("method", "where"), PLACES)
@torch.no_grad()
def test_features_of_a_model_with_a_method_are_extracted(method, where: str | None) -> None:
    """torchvision traces the model with torch.fx."""
    torch.manual_seed(0)
    model, found = osm.apply(vit().eval(), method, where=where), []
    model.blocks[1].register_forward_hook(lambda module, args, out: found.append(out))
    model(IMAGE["x"])
    features = create_feature_extractor(model, ["blocks.1"])(IMAGE["x"])["blocks.1"]
    assert torch.equal(features, found[0])
