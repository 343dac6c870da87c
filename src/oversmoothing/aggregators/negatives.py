"""A random subset of nodes to compare with."""

import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError


class Negatives(nn.Module):
    """Draws nodes without replacement, others in every training step.

    Evaluation always compares with the same nodes, so it neither varies nor takes random numbers
    from training. The state of the generator, which torch's global one seeds, is in the module's
    state.

    Args:
        count: number of nodes to draw.

    Raises:
        InputError: in training, a forward pass that gradient checkpointing repeats; it would draw
            other nodes, and gradients would be wrong.

    Shapes: number of nodes N -> indices (min(count, N),), sorted.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        seed = int(torch.randint(2**62, ()))
        self.state = torch.Generator().manual_seed(seed).get_state()

    def forward(self, num_nodes: int, device: torch.device) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        if self.training:
            _require_first_pass()
            generator.set_state(self.state)
        drawn = torch.randperm(num_nodes, generator=generator)[: self.count].sort().values
        if self.training:
            self.state = generator.get_state()
        return drawn.to(device)

    def get_extra_state(self) -> Tensor:
        return self.state

    def set_extra_state(self, state: Tensor) -> None:
        self.state = state.cpu()


def _require_first_pass() -> None:
    """Checks that no backward pass is running, which repeats parts of the forward pass."""
    if torch._C._current_graph_task_id() != -1:
        raise InputError(
            "aggregator.negatives: gradient checkpointing repeats the forward pass, and would "
            "compare with other nodes than before; turn it off, or set negatives to null"
        )
