"""A random subset of nodes to compare with."""

import numpy as np
import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError

PASSES = 2**20  # more than a part of a training step has


class Negatives(nn.Module):
    """Draws nodes without replacement, others in every forward pass of training.

    The draw depends on a seed, which torch's global generator gives, on the training step and on
    the number of the pass within it. So a resumed training draws the same. Several processes draw
    the same if each begins a part of a step by ``begin_part``.
    Evaluation always compares with the same nodes and takes no random numbers from training.

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
        self.seed, self.step, self.passes = int(torch.randint(2**62, ())), 0, 0

    def advance(self, step: int) -> None:
        """Begins a training step; without this call the passes are counted on."""
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
    """Begins a part of a training step, whichever process computes it, in all ``Negatives``."""
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
