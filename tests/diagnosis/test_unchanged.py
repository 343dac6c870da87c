"""The model, random numbers and torch's settings are as before, also after an exception."""

import contextlib
import copy
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from diagnosed import IDS, bert
from torch import Tensor, nn
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint

import oversmoothing as osm

X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
NODES, EDGES = X[0], torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


class Noisy(nn.Module):
    """Draws random numbers of all kinds, counts its calls, and updates buffers in all modes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.norm, self.generator = nn.BatchNorm1d(6), torch.Generator()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("expanded", torch.ones(1).expand(5))  # nothing can be copied into it
        self.calls, self.inputs, self.found = 0, [], {}
        self.blocks[1].eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.cache, self.found["x"] = x, x
        self.inputs.append(x)
        self.norm.running_mean += 1
        self.blocks[0].weight = nn.Parameter(self.blocks[0].weight.detach().clone())
        noise = torch.rand(6, generator=self.generator) + random.random() + numpy.random.rand()
        for block in self.blocks:
            x = block(x) + torch.rand_like(x) + noise.float()
        return x


class Shared(nn.Module):
    """One block, one norm and one weight under several names."""

    def __init__(self, block: nn.Module, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(block, nn.BatchNorm1d(4))] * depth)
        self.first = self.blocks[0]
        self.tokens, self.head = nn.Embedding(5, 6), nn.Linear(6, 5, bias=False)
        self.head.weight = self.tokens.weight
        self.weights = [self.head.weight]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x + (x @ self.weights[0].mT) @ self.tokens.weight


def _padded_bert() -> Any:
    model = osm.apply(bert(), "contranorm").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    mask = torch.ones_like(IDS).index_fill(1, torch.tensor([2]), 0)
    return model, {"input_ids": IDS}, lambda: model(IDS, attention_mask=mask)[0]


def _vit_of_values() -> Any:
    sizes = {"img_size": 16, "patch_size": 8, "depth": 3, "embed_dim": 16, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", **sizes, proj_drop_rate=0.1).train()
    model.set_grad_checkpointing()
    images = torch.ones(2, 3, 16, 16)
    return osm.apply(model, "value_residual"), {"x": images}, lambda: model(images)


class LoRA(nn.Linear):
    """Adds an update to its weight in evaluation, and takes it off in training."""

    merged = False

    def train(self, mode: bool = True) -> "LoRA":
        super().train(mode)
        if self.merged == mode:
            self.weight.data += -1 if mode else 1
            self.merged = not mode
        return self


class Nodes(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv] * 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


class Recurrent(nn.Sequential):
    """Its modules keep their weights in a list as well."""

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = module(x)[0]
        return x


def layers(change: Callable[[nn.Module], Any] = lambda layer: layer) -> nn.Module:
    net = nn.Sequential(*(nn.Linear(6, 6) for _ in range(2)))
    change(net[1])
    return net


def patched() -> nn.Module:
    """A layer whose forward is a function that knows the layer; copies are not possible."""
    net = layers()
    net.lock = (one for one in ())
    first = net[0]
    first.forward = lambda x: nn.functional.linear(x, first.weight, first.bias) + 1
    return net


def hooked() -> nn.Module:
    """Accelerate replaces the forward of its modules."""
    hooks = pytest.importorskip("accelerate.hooks")
    hook = hooks.AlignDevicesHook("cpu", io_same_device=True)
    return hooks.add_hook_to_module(layers(), hook)


def small_bert() -> nn.Module:
    return bert(hf.BertForMaskedLM, hidden_size=8, num_hidden_layers=2, intermediate_size=8)


def coat() -> nn.Module:
    sizes = {"embed_dims": (16,) * 4, "serial_depths": (2, 1, 1, 1)}
    return timm.create_model("coat_lite_tiny", img_size=32, **sizes)


BLOCKS = {"layers": "blocks.*", "layout": "BNC"}
ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...], dict[str, Any]]] = {
    "noisy": (Noisy, (X,), {"layers": "blocks.*"}),
    "shared": (lambda: Shared(nn.Linear(6, 6)), (X,), BLOCKS),
    "encoder": (lambda: Shared(nn.TransformerEncoderLayer(6, 2, 8)), (X,), BLOCKS),
    "weight_norm": (lambda: layers(parametrizations.weight_norm), (X,), {"layers": ["0", "1"]}),
    "spectral_norm": (lambda: layers(parametrizations.spectral_norm), (X,), {"layers": ["0", "1"]}),
    "orthogonal": (lambda: layers(parametrizations.orthogonal), (X,), {"layers": ["0", "1"]}),
    "hooked weight_norm": (lambda: layers(weight_norm), (X,), {}),
    "merging LoRA": (lambda: nn.Sequential(*(LoRA(6, 6) for _ in range(2))), (X,), {}),
    "recurrent": (lambda: Recurrent(nn.LSTM(6, 6), nn.GRU(6, 6)), (X,), {"layers": ["0", "1"]}),
    "patched": (patched, (X,), {}),
    "tied GCN": (lambda: Nodes(pyg.GCNConv(6, 6, cached=True)), (NODES, EDGES), {}),
    "GATv2": (lambda: Nodes(pyg.GATv2Conv(6, 6, share_weights=True)), (NODES, EDGES), {}),
    "BERT": (small_bert, (IDS,), {}),
    "method": (lambda: osm.apply(small_bert(), "layernorm"), (IDS,), {}),
    "CoaT": (coat, (torch.rand(2, 3, 32, 32),), {"layers": "serial_blocks1.*"}),
    "accelerate": (hooked, (X,), {}),
}


class Same:
    """Equals the same object with the same bits; keeps it alive."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.bits = value.detach().clone() if isinstance(value, Tensor) else None

    def __eq__(self, other: Any) -> bool:
        equal = self.bits is None or torch.equal(self.bits, other.bits)
        return self.value is other.value and equal


def frozen(value: Any) -> Any:
    """An object with all that its lists and dictionaries hold, to be compared later."""
    if isinstance(value, dict):
        return Same(value), [(key, frozen(one)) for key, one in value.items()]
    if isinstance(value, list):
        return Same(value), [frozen(one) for one in value]
    if isinstance(value, torch.Generator):
        return Same(value), value.get_state().tolist()
    return value if isinstance(value, int | float | str | tuple) else Same(value)


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """All that may change: attributes, gradients, the optimizer, random numbers, settings."""
    modules = list(model.modules())
    found = [*modules, *(vars(module) for module in modules), *(p.grad for p in model.parameters())]
    found += [*optimizer.state.values(), *optimizer.param_groups]
    numbers = [torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state())]
    settings = [torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled()]
    settings += [torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")]
    return [*map(frozen, found), *numbers, *settings]


def stop(left: list[int]) -> None:
    """Fails when the last element goes."""
    if left:
        left.pop() / len(left)


@pytest.mark.parametrize("name", ZOO)
def test_nothing_changes(name: str) -> None:
    """In the middle of a training, with and without a reference, also if a pass fails."""
    build, inputs, options = ZOO[name]
    torch.manual_seed(0)
    model, left = build(), []
    [*model.modules()][-1].register_forward_hook(lambda *_: stop(left))
    optimizer = torch.optim.Adam(model.parameters())
    outputs = model(*inputs)
    getattr(outputs, "logits", outputs).sum().backward()
    optimizer.step()
    before, reports = state(model, optimizer), []
    for reference in (None, "random", build):
        refused = reference == "random" and name == "hooked weight_norm"
        stopped = pytest.raises(osm.InputError) if refused else contextlib.nullcontext()
        for batches in ([inputs], [inputs, inputs]):
            with stopped:
                found = osm.diagnose(model, batches=batches, reference=reference, **options)
                reports.append(found)
            assert state(model, optimizer) == before
        for passes in (1, 2, 6):  # the last division is by 0
            left[:] = [1] * passes
            with contextlib.suppress(ZeroDivisionError, osm.InputError):
                osm.diagnose(model, batches=[inputs] * 3, reference=reference, **options)
            left.clear()
            assert state(model, optimizer) == before
    assert all(report.values == reports[i % 2].values for i, report in enumerate(reports))
    random_weights = reports[2].reference
    assert random_weights is not None and random_weights["norm"] != reports[0]["norm"]


def test_the_attention_implementation_stays() -> None:
    model = small_bert()
    before = model.config.to_dict() | {"attention": model.config._attn_implementation}
    osm.diagnose(model, input_ids=IDS, reference="random")
    assert model.config.to_dict() | {"attention": model.config._attn_implementation} == before


class Scaled(nn.Module):
    """Multiplies by buffers, which autograd saves: a dense one, a sparse one, and NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.register_buffer("scale", torch.full((6,), 2.0))
        self.register_buffer("A", torch.eye(5).to_sparse())
        self.register_buffer("unknown", torch.tensor([torch.nan]))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) * self.scale
        return torch.sparse.mm(self.A, x) * self.unknown if x.dim() == 2 else x


def test_measuring_between_forward_and_backward_is_possible() -> None:
    """Buffers that a pass does not change are not written."""
    for x in (torch.randn(2, 5, 6), torch.randn(5, 6)):
        model = Scaled()
        weight = model.blocks[0].weight
        expected = torch.autograd.grad(model(x).sum(), weight)[0]
        out = model(x).sum()
        osm.diagnose(model, x, layout="BNC"[3 - x.dim() :], metrics=["cosine"])
        found = torch.autograd.grad(out, weight)[0]
        assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


def test_a_shuffling_loader_keeps_the_random_numbers_of_training() -> None:
    loader = torch.utils.data.DataLoader(torch.randn(6, 5, 6), batch_size=2, shuffle=True)
    model, before = Scaled(), torch.get_rng_state()
    assert osm.diagnose(model, batches=loader).samples == 6
    assert torch.equal(torch.get_rng_state(), before)


class Writing(nn.Module):
    """Its forward pass writes into weights, and its method for new weights reaches others."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(9, 6, max_norm=1.0)
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def forward(self, ids: Tensor) -> Tensor:
        first = self.blocks[0].weight
        first.data = torch.renorm(first.data, 2, 0, 0.1)
        return self.blocks[1](self.blocks[0](self.tokens(ids)))


@pytest.mark.parametrize("fits", [True, False])
def test_weights_are_kept_that_are_written_by_the_model_itself(fits: bool) -> None:
    model, ids = Writing(), torch.randint(0, 9, (2, 5))
    weights, options = list(model.parameters()), {"layers": "blocks.*", "reference": "random"}
    before = [weight.detach().clone() for weight in weights]
    if fits:
        osm.diagnose(model, ids, **options)
    else:
        model.init_weights = lambda: [nn.init.normal_(weight) for weight in weights]
        with pytest.raises(osm.InputError, match="reference"):
            osm.diagnose(model, ids, **options)
    assert all(one is other for one, other in zip(model.parameters(), weights))
    assert all(torch.equal(one, other) for one, other in zip(weights, before))


def test_two_threads_may_measure_one_model() -> None:
    model, x = Scaled(), torch.randn(2, 5, 6)
    before, reports = [p.detach().clone() for p in model.parameters()], []

    def measure() -> None:
        reports.extend(osm.diagnose(model, x, reference="random").values for _ in range(5))

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 15 and all(report == reports[0] for report in reports)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before))
    assert model.training and not any(m._forward_hooks for m in model.modules())


def test_a_reference_with_the_weights_of_the_model_is_noted() -> None:
    class Loading(Scaled):
        def init_weights(self) -> None:
            self.load_state_dict(state)

    model, x = Loading(), torch.randn(2, 5, 6)
    state = copy.deepcopy(model.state_dict())
    assert any("equal those" in n for n in osm.diagnose(model, x, reference="random").notes)


def test_a_model_that_changes_its_inputs_does_not_change_those_of_the_reference() -> None:
    class InPlace(nn.Sequential):
        def forward(self, given: dict[str, Any]) -> Tensor:
            given["count"] += 1
            given["x"] *= given["count"]
            return super().forward(given["x"])

    model = InPlace(nn.Linear(6, 6), nn.Linear(6, 6))
    given = {"x": torch.randn(2, 5, 6), "count": 1}
    report = osm.diagnose(model, batches=[(given,)], reference=copy.deepcopy(model))
    assert report.reference is not None and report.reference.values == report.values


@pytest.mark.parametrize("build", [_padded_bert, _vit_of_values])
def test_a_look_at_gradients_before_the_backward_pass_of_a_checkpointed_model(build) -> None:
    """Methods know the call that checkpointing repeats, though another one came between."""

    def gradients(look: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model, inputs, call = build()
        loss = call().square().mean()
        if look:
            report = osm.diagnose(model, **inputs, loss=lambda out: _first(out).square().mean())
            assert {"gradient_norm", "attention_similarity"} <= report.values.keys()
        loss.backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    plain, looked = gradients(False), gradients(True)
    assert len(plain) == len(looked) and all(map(torch.equal, plain, looked))


def _first(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def test_a_look_keeps_the_mask_of_a_part_that_checkpointing_repeats() -> None:
    """It is refused, as without the look, rather than repeated without; no mask needs none."""
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model = osm.apply(nn.TransformerEncoder(layer, 2), "pairnorm", where="layers.*.linear2")
    for own in model.layers:
        own._ff_block = partial(checkpoint, own._ff_block, use_reentrant=False)
    x, hidden = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    model(x).square().mean().backward()
    loss = model(x, src_key_padding_mask=hidden).square().mean()
    osm.diagnose(model, x)
    with pytest.raises(osm.InputError, match="checkpoint"):
        loss.backward()
