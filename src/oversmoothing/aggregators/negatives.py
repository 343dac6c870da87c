"""A random subset of nodes to compare with."""

import numpy as np
import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError

PASSES = 2**20  # upper bound of the number of forward passes in a part of a training step


class Negatives(nn.Module):
    """Draws nodes without replacement, anew in every forward pass of training.

    The draw depends on the training step, on the number of the pass within the step, and on a seed
    from torch's global generator. So a resumed training draws the same nodes. Several processes
    draw the same nodes if each calls ``begin_part`` before a part of a step. Evaluation always uses
    the same nodes and does not change the random numbers of training.

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
        self.seed = int(torch.randint(2**62, (), device="cpu"))
        self.step, self.passes = 0, 0

    def advance(self, step: int) -> None:
        """Begins a training step and restarts the count of its passes."""
        self.step, self.passes = step, 0

    def forward(self, num_nodes: int, device: torch.device) -> Tensor:
        key: tuple[int, ...] = (0,)
        if self.training:
            _require_first_pass()
            key = self.seed, self.step, self.passes
            self.passes += 1
        # CPU generators use only the low 32 bits of a seed.
        mixed = int(np.random.SeedSequence(key).generate_state(1)[0])
        generator = torch.Generator().manual_seed(mixed)
        drawn = torch.randperm(num_nodes, generator=generator)[: self.count]
        return drawn.sort().values.to(device)

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.seed, self.step, self.passes])

    def set_extra_state(self, state: Tensor) -> None:
        self.seed, self.step, self.passes = state.tolist()


def begin_part(model: nn.Module, part: int) -> None:
    """Begins a part of a step in all ``Negatives``; their draws depend only on step and part."""
    for module in model.modules():
        if isinstance(module, Negatives):
            module.passes = part * PASSES


def _require_first_pass() -> None:
    """Checks that no backward pass is running, which repeats parts of the forward pass."""
    if torch._C._current_graph_task_id() != -1:
        raise InputError(
            "aggregator.negatives: gradient checkpointing repeats the forward pass, and would "
            "compare with other nodes than before; turn it off, or set negatives to null"
        )
