"""What a diagnosis does not do beside the model: to settings, threads, autograd, and inputs."""

import copy
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.diagnosis.unchanged import same_random_numbers


def test_the_attention_implementation_stays() -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 9}
    model = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=8))
    before = model.config.to_dict() | {"attention": model.config._attn_implementation}
    osm.diagnose(model, input_ids=torch.ones(1, 4, dtype=torch.long), reference="random")
    assert model.config.to_dict() | {"attention": model.config._attn_implementation} == before


def test_a_shuffling_loader_keeps_the_random_numbers_of_training() -> None:
    loader = torch.utils.data.DataLoader(torch.randn(6, 4, 6), batch_size=2, shuffle=True)
    model, before = Scaled(), torch.get_rng_state()
    assert osm.diagnose(model, batches=loader).samples == 6
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_of_another_thread_are_not_turned_off() -> None:
    seen: list[bool] = []
    model = Scaled()

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
    on = SimpleNamespace(device=torch.device("mps:0"))
    on_mps = SimpleNamespace(parameters=lambda: [on], modules=list)
    with same_random_numbers(on_mps):
        states.append(torch.tensor([2]))
    assert states[-1] is states[0]


class Scaled(nn.Module):
    """Multiplies by a buffer, which autograd saves."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.register_buffer("scale", torch.full((6,), 2.0))

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


class Adjacent(nn.Sequential):
    """Multiplies by a sparse buffer, which autograd saves."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 6), nn.Linear(6, 6))
        self.register_buffer("A", torch.eye(5).to_sparse())
        self.register_buffer("unknown", torch.tensor([torch.nan]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.A, super().forward(x)) * self.unknown


def test_sparse_buffers_and_nan_that_a_pass_does_not_change_are_not_written() -> None:
    model, x = Adjacent(), torch.randn(5, 6)
    out = model(x).sum()
    osm.diagnose(model, x, layers="*", layout="NC", metrics=["cosine"])
    out.backward()


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
    before, reports = copy.deepcopy(model.state_dict()), []

    def measure() -> None:
        reports.extend(osm.diagnose(model, x, reference="random").values for _ in range(5))

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 15 and all(report == reports[0] for report in reports)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
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
