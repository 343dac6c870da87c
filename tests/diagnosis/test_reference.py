"""The reference of a diagnosis: the model at random initialisation."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic

import oversmoothing as osm
from oversmoothing.diagnosis.reference import draw


def redrawn(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Parameters and buffers of a model at random initialisation."""
    with draw(model, seed).inside(model):
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


IMAGES = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))
IDS = torch.randint(1, 50, (2, 12), generator=torch.Generator().manual_seed(0))
NODES = torch.randn(12, 16, generator=torch.Generator().manual_seed(0))
RING = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
EDGES = torch.cat([RING, RING.flip(0)], 1)
TEXT = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 4, "vocab_size": 50}


class GPT(nn.Module):
    """Draws its weights by a method for one module, as nanoGPT, DeiT and DINO do."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, 32), nn.Embedding(12, 32)
        make = partial(nn.TransformerEncoderLayer, 32, 2, 64, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(make() for _ in range(4))
        self.start()

    def start(self) -> None:
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x


class Public(GPT):
    """Draws its weights by ``init_weights(module)``."""

    def start(self) -> None:
        self.apply(self.init_weights)

    def init_weights(self, module: nn.Module) -> None:
        self._init_weights(module)

    def _init_weights(self, module: nn.Module, std: float = 0.1) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)


class Mae(GPT):
    """Draws its weights by a method without arguments, with parameters of its own."""

    def start(self) -> None:
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.initialize_weights()

    def initialize_weights(self) -> None:
        nn.init.normal_(self.token, std=0.02)
        self.apply(self._init_weights)

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.token


class Deep(GPT):
    """Draws its weights by ``_init_weights()``, with a scale that depends on the depth."""

    def start(self) -> None:
        self._init_weights()

    def _init_weights(self) -> None:  # type: ignore[override]
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                nn.init.normal_(
                    weight, std=0.3 / math.sqrt(len(self.blocks)) if "2" in name else 0.05
                )


class Subclass(hf.BertModel):
    """A model of transformers in a user's file, as trust_remote_code loads it as well."""

    def __init__(self, config: hf.BertConfig) -> None:
        super().__init__(config, add_pooling_layer=False)
        self.token = nn.Parameter(torch.randn(1, 1, 32))

    def forward(self, input_ids: Tensor) -> Any:
        return super().forward(
            inputs_embeds=self.embeddings.word_embeddings(input_ids) + self.token
        )


class WithArguments(hf.BertModel):
    """A subclass that its config alone cannot build."""

    def __init__(self, config: hf.BertConfig, pooled: bool) -> None:
        super().__init__(config, add_pooling_layer=pooled)
        self.post_init()


class WithToken(nn.Module):
    """A token that nothing draws, beside a model of a library."""

    def __init__(self) -> None:
        super().__init__()
        self.bert, self.token = bert(), nn.Parameter(torch.randn(1, 1, 32))

    def forward(self, ids: Tensor) -> Tensor:
        return self.bert(ids).last_hidden_state + self.token


class Drawn(WithToken):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.token)


class Tied(nn.Module):
    def __init__(self, conv: nn.Module, depth: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv] * depth)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return x


class Wrapped(nn.Module):
    """A new head and an own token around a model of timm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = vit(num_classes=0)
        self.head = nn.Sequential(*(nn.Linear(64, 64) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body.forward_features(x))


def vit(**options: Any) -> nn.Module:
    return timm.create_model("test_vit", **options)


def encoder(normalise: Callable[[nn.Module], nn.Module] = lambda layer: layer) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    for one in net.layers:
        normalise(one.linear1)
    return net


def bert(build: type = hf.BertModel, *args: Any, **options: Any) -> nn.Module:
    sizes = TEXT | {"intermediate_size": 48, "initializer_range": 0.2}
    return build(hf.BertConfig(**sizes | options), *args)


def swin(**options: Any) -> nn.Module:
    small = {"img_size": 64, "window_size": 2, "embed_dim": 12, "num_heads": (2, 2, 2, 2)}
    return timm.create_model("swin_tiny_patch4_window7_224", **small | options)


X = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(0))
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...], dict[str, Any]]] = {
    "timm, another depth": (lambda: vit(depth=15), (IMAGES,), {}),
    "timm, mlp_ratio": (lambda: vit(mlp_ratio=3), (IMAGES,), {}),
    "timm, weight_init": (lambda: vit(weight_init="jax"), (IMAGES,), {}),
    "timm, init_values": (lambda: vit(init_values=0.5), (IMAGES,), {}),
    "timm, Swin's depths": (
        lambda: swin(depths=(2, 2, 8, 2)),
        (IMAGES[..., :64, :64],),
        {"layers": "layers.2.blocks.*", "layout": "BHWC"},
    ),
    "timm, ConvNeXt's depths": (
        lambda: timm.create_model("test_convnext", depths=(1, 2, 9, 2)),
        (IMAGES,),
        {"layers": "stages.2.blocks.*", "layout": "BCHW"},
    ),
    "timm, CaiT's img_size": (
        lambda: timm.create_model("cait_xxs24_224", img_size=32, patch_size=8, depth=4),
        (IMAGES[..., :32, :32],),
        {"layers": "blocks.*"},
    ),
    "timm, inside": (Wrapped, (IMAGES,), {"layers": "body.blocks.*"}),
    "transformers": (bert, (IDS,), {}),
    "transformers, a new layer": (
        lambda: setattr(net := bert(), "pooler", nn.Linear(32, 3)) or net,  # type: ignore[func-returns-value]
        (IDS,),
        {},
    ),
    "transformers, subclass": (lambda: bert(Subclass), (IDS,), {}),
    "transformers, inside": (Drawn, (IDS,), {}),
    "transformers, arguments": (lambda: bert(WithArguments, True), (IDS,), {}),
    "transformers, decoder": (
        lambda: hf.GPT2Model(hf.GPT2Config(n_embd=32, n_head=2, n_layer=5, vocab_size=50)),
        (IDS,),
        {},
    ),
    "torch-geometric": (lambda: pyg.GCN(16, 32, 6), (NODES, EDGES), {}),
    "torch-geometric, tied": (lambda: Tied(pyg.GCNConv(16, 16), 4), (NODES, EDGES), {}),
    "torch-geometric, shared": (
        lambda: Tied(pyg.GATv2Conv(16, 8, 2, share_weights=True), 2),
        (NODES, EDGES),
        {},
    ),
    "torch": (encoder, (X,), {}),
    "weight_norm": (lambda: encoder(nn.utils.parametrizations.weight_norm), (X,), {}),
    "spectral_norm": (lambda: encoder(nn.utils.parametrizations.spectral_norm), (X,), {}),
    "nanoGPT, DeiT": (GPT, (IDS,), {"layers": "blocks.*"}),
    "init_weights(module)": (Public, (IDS,), {"layers": "blocks.*"}),
    "MAE": (Mae, (IDS,), {"layers": "blocks.*"}),
    "_init_weights()": (Deep, (IDS,), {"layers": "blocks.*"}),
}


def numbers(report: osm.Report | None) -> Tensor:
    """Cosine, log of the effective rank, and log of the norm of every layer."""
    assert report is not None
    found = torch.tensor([report[m] for m in ("cosine", "effective_rank", "norm")])
    return torch.stack([found[0], found[1].log(), found[2].log()])


@pytest.mark.parametrize("name", MODELS)
def test_a_new_model_and_its_reference_agree_within_noise(name: str) -> None:
    """The mean of three references differs from that of three new models by their spread only."""
    build, inputs, options = MODELS[name]
    new, drawn = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        report = osm.diagnose(build(), *inputs, reference="random", seed=seed + 9, **options)
        assert not any("equal those" in note for note in report.notes)
        new.append(numbers(report))
        drawn.append(numbers(report.reference))
    one, other = torch.stack(new), torch.stack(drawn)
    spread = torch.maximum(one.std(0), other.std(0))
    assert ((one.mean(0) - other.mean(0)).abs() < 4 * spread + 0.03).all(), (one - other).mean(0)


@pytest.mark.parametrize(
    "name", ["timm, inside", "transformers, inside", "torch-geometric", "spectral_norm", "MAE"]
)
def test_random_weights_depend_on_the_seed_only(name: str) -> None:
    """Not on the trained ones; the report of the model is the same with and without."""
    build, inputs, options = MODELS[name]
    new, trained = build(), build()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.5).add_(0.01)
    drawn, again, other = (redrawn(trained, seed) for seed in (0, 0, 1))
    names = {n for n, _ in (*new.named_parameters(), *new.named_buffers())}
    assert drawn.keys() == again.keys() == names
    assert all(torch.equal(drawn[n], again[n]) for n in drawn)
    assert any(not torch.equal(drawn[n], other[n]) for n in drawn)
    report = osm.diagnose(trained, *inputs, reference="random", seed=3, **options)
    assert report.values == osm.diagnose(trained, *inputs, **options).values
    assert report.reference["norm"] != pytest.approx(report["norm"]) and "seed 3" in str(report)
    new.load_state_dict(redrawn(trained, 3), strict=False)
    beside = osm.diagnose(trained, *inputs, reference=new, **options).reference
    assert beside.values == report.reference.values
    assert beside.values == osm.diagnose(new, *inputs, **options).values


class Lora(nn.Module):
    """A linear layer as PEFT wraps it: its parameters have other names."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer, self.lora_embedding_A = layer, nn.ParameterDict()
        self.lora_A = nn.ModuleDict({"own": nn.Linear(layer.in_features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"own": nn.Linear(2, layer.out_features, bias=False)})

    def reset_lora_parameters(self, name: str, init_lora_weights: bool) -> None:
        nn.init.normal_(self.lora_A[name].weight)
        nn.init.constant_(self.lora_B[name].weight, 0.0 if init_lora_weights else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B["own"](self.lora_A["own"](x))


def test_a_method_with_parameters_does_not_change_the_reference() -> None:
    config = hf.GPT2Config(n_embd=64, n_head=2, n_layer=2, vocab_size=99)
    plain, applied = hf.GPT2Model(config), osm.apply(hf.GPT2Model(config), "layernorm")
    drawn, known = redrawn(applied, 0), redrawn(plain, 0)
    assert drawn.keys() > known.keys()
    assert all(torch.equal(drawn[name], known[name]) for name in known)
    assert not any(value.isnan().any() for value in drawn.values())


def test_layers_with_lora_are_drawn_like_those_without() -> None:
    plain, adapted = (bert() for _ in range(2))
    for layer in adapted.encoder.layer:
        layer.attention.self.query = Lora(layer.attention.self.query)
    reports = [osm.diagnose(model, IDS, reference="random") for model in (plain, adapted)]
    assert reports[0].reference.values == reports[1].reference.values


@pytest.mark.parametrize("affine", [False, True])
def test_running_statistics_are_those_of_a_new_model(affine: bool) -> None:
    def build() -> nn.Module:
        return nn.Sequential(
            *(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=affine)) for _ in range(2))
        )

    trained, new = build(), dict(build().named_buffers())
    for _ in range(3):
        trained(torch.randn(9, 4) + 5)
    assert not any(torch.equal(found, new[name]) for name, found in trained.named_buffers())
    drawn = redrawn(trained, 0)
    assert new and all(torch.equal(drawn[name], expected) for name, expected in new.items())


class Constructed(nn.Module):
    """Draws weights in its constructor, where nothing can call it again."""

    def __init__(self, std: float = 5.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        for block in self.blocks:
            nn.init.normal_(block.weight, std=std)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Broken(nn.Sequential):
    def reset_parameters(self) -> None:
        raise AttributeError("on purpose")


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(plain())


def offloaded() -> nn.Module:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.cpu_offload(plain(), execution_device=torch.device("cpu"))


def plain(kind: type = nn.Sequential) -> nn.Module:
    return kind(nn.Linear(3, 3), nn.Linear(3, 3))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (WithToken, "token"),
        (sharded, "0.weight is a DTensor"),
        (offloaded, "0.weight is not in memory"),
        (lambda: plain(Broken), "Broken.reset_parameters"),
        (lambda: quantize_dynamic(plain(), {nn.Linear}), "quantised"),
        (lambda: plain().to(torch.complex64), "0.weight is torch.complex64"),
    ],
)
@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization:DeprecationWarning")
def test_what_cannot_be_drawn_is_refused_with_the_way_out(build: Callable, what: str) -> None:
    model = build()
    with pytest.raises(osm.InputError, match=f"^reference: .*{what}.*give a function"):
        osm.diagnose(model, torch.randn(2, 4, 3), layers="*", reference="random")


def test_code_of_a_constructor_that_cannot_be_repeated_is_noted() -> None:
    model, x = Constructed(), torch.randn(2, 4, 3)
    (note,) = osm.diagnose(model, x, reference="random").notes
    assert "Constructed" in note and "reference=<function>" in note
    assert not osm.diagnose(model, x).notes
    assert not osm.diagnose(model, x, reference=Constructed).notes
    torch.manual_seed(0)
    (note,) = osm.diagnose(Constructed(), x, reference=Constructed).notes  # drawn alike
    assert "equal those" in note and "seed=1" in note


def test_a_function_builds_the_reference_with_the_seed() -> None:
    x, before = torch.randn(2, 4, 3, dtype=torch.float64), torch.get_rng_state()
    model = Constructed().double()
    numbers = torch.get_rng_state()
    reports = [osm.diagnose(model, x, reference=Constructed, seed=seed) for seed in (1, 1, 2)]
    one, again, other = (report.reference for report in reports)
    assert torch.equal(torch.get_rng_state(), numbers) and not torch.equal(numbers, before)
    torch.manual_seed(1)
    assert one.values == again.values == osm.diagnose(Constructed().double(), x).values
    assert one.values != other.values and "seed 1" in one.model
    for wrong in (lambda: None, "new", 3):
        with pytest.raises(osm.InputError, match="^reference: "):
            osm.diagnose(model, x, reference=wrong)


def test_a_model_of_torch_geometric_may_draw_what_its_layers_have_drawn() -> None:
    model = pyg.LightGCN(50, 64, 2)
    std = model.embedding.weight.std().item()
    assert redrawn(model, 0)["embedding.weight"].std().item() == pytest.approx(std, rel=0.2)


def test_a_learned_scale_of_contranorm_can_be_drawn_again() -> None:
    layer = osm.ContraNorm(4, 0.3, learnable=True, positive=True)
    expected = layer.scale.detach().clone()
    torch.nn.init.zeros_(layer.scale)
    assert torch.equal(redrawn(layer, 0)["scale"], expected)
