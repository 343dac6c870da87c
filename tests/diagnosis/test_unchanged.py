"""The model, torch's random numbers and its settings are as before, also after an exception."""

import contextlib
import copy
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.diagnosis.unchanged import same_random_numbers


class Noisy(nn.Module):
    """Draws random numbers, counts its calls, and updates buffers in all modes."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.fails = 0, fails

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.cache = x
        self.norm.running_mean += 1
        for block in self.blocks:
            x = block(x) + torch.rand_like(x)
        if self.fails:
            raise RuntimeError("on purpose")
        return x


def state(model: nn.Module) -> dict[str, Any]:
    """Everything that may change: weights, gradients, buffers, modes, hooks, attributes, RNG."""
    modules = dict(model.named_modules())
    hooks = {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in modules.items()}
    plain = {n: [v for v in vars(m).values() if isinstance(v, int)] for n, m in modules.items()}
    return copy.deepcopy(
        {
            "state": dict(model.state_dict()),
            "gradients": {n: p.grad for n, p in model.named_parameters()},
            "modes": {n: m.training for n, m in model.named_modules()},
            "attributes": {n: sorted(vars(m)) for n, m in model.named_modules()},
            "hooks": hooks,
            "plain": plain,
            "random": torch.get_rng_state(),
            "fast": torch.backends.mha.get_fastpath_enabled(),
            "grad": torch.is_grad_enabled(),
        }
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize("options", [{}, {"reference": "random"}, {"layers": ["blocks.1"]}])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_changes(options: dict, fails: bool) -> None:
    model = Noisy(fails)
    model.blocks[1].eval()  # modes are restored one by one
    model(torch.randn(2, 4, 6)).sum().backward() if not fails else None
    before = state(model)
    stopped = pytest.raises(RuntimeError, match="purpose") if fails else contextlib.nullcontext()
    with stopped:
        osm.diagnose(model, torch.randn(2, 4, 6, generator=torch.Generator()), **options)
    assert same(state(model), before)


def test_an_error_in_a_hook_changes_nothing() -> None:
    model, x = Noisy(), torch.ones(2, 4, 6)
    model.blocks[1].weight.data[0, 0] = torch.nan
    before = state(model)
    with pytest.raises(osm.InputError, match=r"blocks\.1: returns values that are not finite"):
        osm.diagnose(model, x)
    after = state(model)
    assert before["state"].pop("blocks.1.weight").isnan().sum() == 1
    assert after["state"].pop("blocks.1.weight").isnan().sum() == 1
    assert same(after, before)


def test_caches_of_layers_are_restored() -> None:
    """GCNConv(cached=True) keeps the graph that it sees first."""
    edges = torch.tensor([[0, 1], [1, 0]])
    model = pyg.GCN(3, 4, 2, cached=True).eval()
    osm.diagnose(model, torch.randn(3, 3), edges)
    assert all(layer._cached_edge_index is None for layer in model.convs)


def test_the_attention_implementation_stays() -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 9}
    model = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=8))
    before = model.config.to_dict() | {"attention": model.config._attn_implementation}
    osm.diagnose(model, input_ids=torch.ones(1, 4, dtype=torch.long), reference="random")
    assert model.config.to_dict() | {"attention": model.config._attn_implementation} == before


def test_a_shuffling_loader_keeps_the_random_numbers_of_training() -> None:
    loader = torch.utils.data.DataLoader(torch.randn(6, 4, 6), batch_size=2, shuffle=True)
    model, before = Noisy(), torch.get_rng_state()
    assert osm.diagnose(model, batches=loader).samples == 6
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_of_another_thread_are_not_turned_off() -> None:
    seen: list[bool] = []
    model = Noisy()

    def note(*_: Any) -> None:
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()

    model.blocks[0].register_forward_hook(note)
    osm.diagnose(model, torch.randn(2, 4, 6))
    assert seen == [True]


def test_the_generator_of_mps_is_asked_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [torch.tensor([1])]  # as in versions of torch whose functions take no device
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: states.append(state))
    on_mps = SimpleNamespace(parameters=lambda: [SimpleNamespace(device=torch.device("mps:0"))])
    with same_random_numbers(on_mps):
        states.append(torch.tensor([2]))
    assert states[-1] is states[0]


class Scaled(nn.Module):
    """Multiplies by a buffer, which autograd saves; has others that nothing can copy into."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.register_buffer("scale", torch.full((6,), 2.0))
        self.register_buffer("expanded", torch.ones(1).expand(5))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) * self.scale
        return x


def test_measuring_between_forward_and_backward_is_possible() -> None:
    model, x = Scaled(), torch.randn(2, 5, 6)
    expected = torch.autograd.grad(model(x).sum(), model.blocks[0].weight)[0]
    out = model(x).sum()
    osm.diagnose(model, x, metrics=["cosine"])
    assert torch.equal(torch.autograd.grad(out, model.blocks[0].weight)[0], expected)


class LoRA(nn.Linear):
    """Adds an update to its weight in evaluation, and takes it off in training."""

    merged = False

    def train(self, mode: bool = True) -> "LoRA":
        super().train(mode)
        if self.merged == mode:
            self.weight.data += -1 if mode else 1
            self.merged = not mode
        return self


def test_layers_that_merge_weights_in_evaluation_keep_them() -> None:
    model = nn.Sequential(*(LoRA(6, 6) for _ in range(3))).train()
    before = copy.deepcopy(model.state_dict())
    osm.diagnose(model, torch.randn(2, 5, 6), metrics=["cosine"])
    assert model.training and not model[0].merged
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


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
