"""The reference of a diagnosis: the model at random initialisation."""

from collections.abc import Callable, Iterator

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.diagnosis.reference import draw

SMALL = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 20}
EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
IDS = torch.randint(1, 20, (2, 7), generator=torch.Generator().manual_seed(0))


def redrawn(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Parameters and buffers of a model at random initialisation."""
    with draw(model, seed).inside(model):
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


class Wrapped(nn.Module):
    """A model with a library's model inside, and a token that its own method initialises."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=8))
        self.token = nn.Parameter(torch.randn(1, 1, 64))

    def forward(self, ids: Tensor) -> Tensor:
        return self.bert(ids).last_hidden_state + self.token


class Drawn(Wrapped):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.token)


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


MODELS = {
    "vit": (
        lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2),
        (torch.rand(1, 3, 32, 32),),
    ),
    "resnet": (lambda: timm.create_model("resnet10t"), (torch.rand(1, 3, 64, 64),)),
    "bert": (lambda: hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=8)), (IDS,)),
    "gat": (lambda: pyg.GAT(3, 16, 2, heads=2), (torch.randn(3, 3), EDGES)),
    "torch": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2),
        (torch.randn(2, 5, 8),),
    ),
    "wrapped": (Drawn, (IDS,)),
}


def test_a_method_with_parameters_does_not_change_the_reference() -> None:
    config = hf.GPT2Config(n_embd=64, n_head=2, n_layer=2, vocab_size=99)
    plain, applied = hf.GPT2Model(config), osm.apply(hf.GPT2Model(config), "layernorm")
    drawn, known = redrawn(applied, 0), redrawn(plain, 0)
    assert drawn.keys() > known.keys()
    assert all(torch.equal(drawn[name], known[name]) for name in known)
    assert not any(value.isnan().any() for value in drawn.values())


def test_layers_with_lora_are_drawn_like_those_without() -> None:
    plain, adapted = (hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=8)) for _ in range(2))
    for layer in adapted.encoder.layer:
        layer.attention.self.query = Lora(layer.attention.self.query)
    reports = [osm.diagnose(model, IDS, reference="random") for model in (plain, adapted)]
    assert reports[0].reference.values == reports[1].reference.values


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_are_those_of_a_new_model(name: str) -> None:
    """They have the scale of a new model's weights, and depend on the seed only."""
    build, inputs = MODELS[name]
    new, trained = build(), build()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(7).add_(1)
    drawn, again = redrawn(trained, 0), redrawn(trained, 0)
    other = redrawn(trained, 1)
    names = {n for n, _ in (*new.named_parameters(), *new.named_buffers())}
    assert drawn.keys() == again.keys() == names
    assert all(torch.equal(drawn[n], again[n]) for n in drawn)
    assert any(not torch.equal(drawn[n], other[n]) for n in drawn)
    for n, parameter in new.named_parameters():
        if parameter.numel() > 500:
            assert drawn[n].std().item() == pytest.approx(parameter.std().item(), rel=0.3), n
    report = osm.diagnose(trained, *inputs, reference="random")
    assert report.reference is not None and report.reference.layers == report.layers
    assert report.reference["norm"] != pytest.approx(report["norm"])
    assert report.values == osm.diagnose(trained, *inputs).values


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


def test_the_reference_equals_a_model_with_those_weights() -> None:
    build, inputs = MODELS["vit"]
    model, fresh = build(), build()
    fresh.load_state_dict(redrawn(model, 3))
    report = osm.diagnose(model, *inputs, reference="random", seed=3)
    assert report.reference.values == osm.diagnose(fresh, *inputs).values
    beside = osm.diagnose(model, *inputs, reference=fresh)
    assert beside.reference.values == report.reference.values
    assert "seed 3" in str(report)


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


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (Wrapped, "token"),
        (sharded, "0.weight is a DTensor"),
        (offloaded, "0.weight is not in memory"),
        (lambda: plain(Broken), "Broken.reset_parameters"),
        (lambda: plain().to(torch.complex64), "0.weight is torch.complex64"),
    ],
)
@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_drawn_is_refused_with_the_way_out(build: Callable, what: str) -> None:
    model = build()
    with pytest.raises(osm.InputError, match=f"reference: .*{what}.*; give .*reference=<function>"):
        osm.diagnose(model, torch.randn(2, 4, 3), layers="*", reference="random")


def test_code_of_a_constructor_that_cannot_be_repeated_is_noted() -> None:
    model, x = Constructed(), torch.randn(2, 4, 3)
    (note,) = osm.diagnose(model, x, reference="random").notes
    assert "Constructed" in note and "reference=<function>" in note
    assert not osm.diagnose(model, x).notes
    assert not osm.diagnose(model, x, reference=Constructed).notes


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
        with pytest.raises(osm.InputError, match="reference: expected 'random', a model, or a fun"):
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


def test_a_reference_with_compiled_parts() -> None:
    def model() -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(nn.Linear(3, 3)) for _ in range(2)))

    plain, compiled, x = model(), model(), torch.randn(2, 4, 3)
    compiled.load_state_dict(plain.state_dict())
    for i in range(2):
        compiled[i] = torch.compile(compiled[i])
    report = osm.diagnose(plain, x, layers=["0.0", "1.0"], reference=compiled)
    assert report.reference is not None and report.reference.values == report.values


def test_another_number_of_layers_is_refused() -> None:
    deep = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    shallow = nn.Sequential(*(nn.Linear(3, 3) for _ in range(2)))
    with pytest.raises(osm.InputError, match="reference: has no layer 2"):
        osm.diagnose(deep, torch.randn(2, 4, 3), reference=shallow)
