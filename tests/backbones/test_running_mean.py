"""Laws of the running mean over parts of a graph."""

import pytest
import torch

from oversmoothing.lab.backbones.running_mean import RunningMean


@pytest.mark.parametrize("momentum", [0.0, 0.3, 1.0])
def test_a_running_mean_has_the_gradient_of_the_part(
    momentum: float,
) -> None:
    before, v = torch.randn(2, 1, 4).double(), torch.randn(2, 5, 4).double().requires_grad_()
    mean = RunningMean(momentum)
    mean.value = before
    out = mean(v)
    now = v.detach().mean(dim=1, keepdim=True)
    assert torch.allclose(out, (1 - momentum) * before + momentum * now, atol=1e-15)
    out.sum().backward()
    assert torch.allclose(v.grad, torch.full_like(v, 1 / 5))
    mean.settle()
    moved = (1 - momentum) * before + momentum * now if momentum < 1 else before
    assert torch.allclose(mean.value, moved, atol=1e-15)
    assert torch.equal(mean.eval()(v), v.mean(dim=1, keepdim=True))  # evaluation: those given


def test_parts_of_a_step_are_weighted_by_their_nodes() -> None:
    mean, v = RunningMean(0.5), torch.randn(7, 4).double()
    mean.settle()  # a step without parts moves nothing
    assert mean.value.numel() == 0
    mean(v[:2]), mean(v[2:])
    for _ in range(2):
        mean.settle()
        assert torch.allclose(mean.value, v.mean(dim=0, keepdim=True))
    resumed = RunningMean(0.5)
    resumed.load_state_dict(mean.state_dict())
    assert torch.equal(resumed.value, mean.value)


def test_half_precision_counts_many_nodes() -> None:
    """Their sum, and already their number, are above float16's 65504."""
    mean = RunningMean(0.5)
    for level in (3.0, 5.0, 9.0):
        out = mean(torch.full((70_000, 2), level).half())
        mean.settle()
    assert out.dtype == torch.float16
    assert torch.equal(mean.value, torch.full((1, 2), ((3 + 5) / 2 + 9) / 2))
    assert torch.equal(out, mean.value.half())
