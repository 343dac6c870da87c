"""The moving average of EM's bases: in half precision, and in files."""

import torch
from torch import Tensor

from oversmoothing.aggregators.em import EM


def test_the_moving_average_in_half_precision_counts_all_samples() -> None:
    """bfloat16 cannot count beyond 256."""
    torch.manual_seed(0)
    parts = torch.randn(600, 1, 12, 8)
    layers = [EM(8, num_bases=3, momentum=0.0) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].bfloat16()
    for layer in layers:
        for part in parts:
            layer(part.to(layer.bases.dtype))
        layer.settle()
    exact, half = (layer.bases.float() for layer in layers)
    assert (exact - half).norm() < 0.02 * exact.norm()


def test_a_state_is_tensors_and_earlier_ones_can_be_loaded() -> None:
    layer = EM(8, num_bases=3)
    layer(torch.randn(2, 12, 8))
    state = layer.state_dict()
    assert all(isinstance(value, Tensor) for value in state.values())
    again, earlier = EM(8, num_bases=3), EM(8, num_bases=3)
    again.load_state_dict(state)
    earlier.load_state_dict(state | {"_extra_state": {"pending": state["_extra_state"]}})
    for other in (layer, again, earlier):
        other.settle()
    assert torch.equal(again.bases, layer.bases) and torch.equal(earlier.bases, layer.bases)
