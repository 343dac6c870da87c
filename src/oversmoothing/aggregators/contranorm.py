r"""ContraNorm (Guo et al., ICLR 2023, A Contrastive Learning Perspective on Oversmoothing).

.. math:: x ← x − s · P x, \quad P = \mathrm{softmax}(x̂x̂ᵀ/τ), \quad x̂_i = x_i/‖x_i‖

This is a gradient step on the uniformity loss: every token moves away from the tokens that resemble
it. It is the form of the authors' code, whose five variants the options below cover. The paper's
Eq. 7 to 9 print s/τ in place of s, and x in place of x̂: ``printed``.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context
from oversmoothing.aggregators.checks import check_counts, check_finite, check_temperature, padding
from oversmoothing.aggregators.sparse_softmax import EPS, average, unit
from oversmoothing.errors import InputError

HALF = (torch.float16, torch.bfloat16)


class ContraNorm(After):
    """ContraNorm over tokens.

    Time is quadratic in N, or linear with ``negatives``. Memory is linear: the N×N matrix is formed
    only in a dense mixing, if ``dual`` or N ≤ C. On a graph and a GPU with Triton, each pair of up
    to 65,536 nodes also has a bit. On a graph P is computed in bfloat16 after
    ``torch.set_float32_matmul_precision("medium")``, unless τ < 0.1; entries have errors of about
    0.4 % / τ.

    Args:
        dim: channels C.
        scale: s; at 0 the result is x (with ``layernorm``: LayerNorm of x). A tensor broadcasts
            against (..., N, C), with one s for each leading entry.
        temperature: τ of the softmax, above 0.
        identity: compute (1 + s) x − s·Px, as on graphs and in BERT; else x − s·Px, as in ViT and
            ALBERT.
        dual: add Pᵀ to P, which is the softmax over columns unless edges are directed. It is the
            second term of the loss, which the form with stop-gradient drops.
        pre_norm: use x̂ instead of x everywhere.
        learnable: learn one s for each channel, from ``scale``. With ``identity`` the result is
            s⊙x − s⊙Px: as in the authors' code, without the 1.
        positive: learn log s, so that s stays above 0; needs ``learnable``.
        layernorm: apply LayerNorm at the end, as in ViT.
        mask_neighbours: on a graph, compare a node neither with itself nor with its neighbours;
            no effect if the mixing is dense.
        negatives: number of nodes to compare with; None, or N and more: all. Every forward pass
            of training draws them without replacement, the same ones for every node. Numerator
            and denominator of the softmax average Px are unbiased up to a common factor; their
            ratio has bias O(1/negatives) and standard deviation O(1/√negatives). Px is 0 for a
            node that is compared with none of the drawn nodes, see ``mask_neighbours``.
            Evaluation always uses the same nodes. Gradient checkpointing is not supported.
        printed: the paper's equations: P = softmax(xxᵀ/τ), and s/τ is the factor of Px. On
            a graph, all nodes are compared, neighbours included.

    Raises:
        InputError: dim is below 1, the scale is not finite, the temperature is not above 0,
            ``positive`` is without ``learnable``, ``learnable`` with a scale that is not one number
            above 0, or ``negatives`` is below 1 or with ``printed`` or ``dual``; ``context`` is
            causal, or its mask differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        dim: int,
        scale: float | Tensor = 1.0,
        temperature: float = 1.0,
        identity: bool = True,
        dual: bool = False,
        pre_norm: bool = False,
        learnable: bool = False,
        positive: bool = False,
        layernorm: bool = False,
        mask_neighbours: bool = True,
        negatives: int | None = None,
        printed: bool = False,
    ) -> None:
        super().__init__()
        check_counts(dim=dim)
        _check(scale, temperature, learnable, positive, negatives)
        for option, given in (("printed", printed), ("dual", dual)):  # these need all nodes
            if given and negatives is not None:
                raise InputError(
                    f"aggregator.negatives: set it to null, or aggregator.{option}=false"
                )
        self.negatives = None if negatives is None else Negatives(negatives)
        self.draws = negatives is not None
        self.reads_mask = negatives is None
        self.temperature, self.printed = temperature, printed
        self.mask_neighbours = mask_neighbours and not printed
        self.identity, self.dual, self.pre_norm = identity, dual, pre_norm
        self.log_scale = positive
        self.scale: float | Tensor = scale
        if learnable:
            self.initial = math.log(scale) if positive else float(scale)
            self.scale = nn.Parameter(torch.empty(dim))
            self.reset_parameters()
        self.norm = nn.LayerNorm(dim, eps=1e-6) if layernorm else nn.Identity()

    def reset_parameters(self) -> None:
        """Sets the learned s to its initial value."""
        if isinstance(self.scale, nn.Parameter):
            nn.init.constant_(self.scale, self.initial)

    @property
    def steady(self) -> bool:
        return self.negatives is None

    def advance(self, step: int) -> None:
        if self.negatives is not None:
            self.negatives.advance(step)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        x = unit(x) if self.pre_norm else x
        contrast = self._contrast(x, context)
        contrast = contrast / self.temperature if self.printed else contrast
        return self.norm(self._pushed(x, contrast))

    def _contrast(self, x: Tensor, context: Context) -> Tensor:
        """Computes P x, or (P + Pᵀ) x if ``dual``."""
        *_, N, C = x.shape
        mask = padding(context)
        sparse = self.mask_neighbours and context.edges is not None
        neighbours = context.neighbours if sparse else None  # its lock breaks compiled graphs
        chosen = None
        if self.negatives is not None and self.negatives.count < N:
            chosen = self.negatives(N, x.device)
        if chosen is not None or neighbours is not None:
            return average(x, neighbours, self.temperature, self.dual, chosen)
        if mask is not None:  # where it hides all tokens, a softmax over none would give NaN
            mask = mask | ~mask.any(dim=-1, keepdim=True)
        # Up to N = C the N×N matrix is not larger than the tokens, and forming it is faster.
        explicit = self.dual or N <= C
        return self._explicit(x, mask) if explicit else self._fused(x, mask)

    def _pushed(self, x: Tensor, contrast: Tensor) -> Tensor:
        """Returns x or (1 + s) x, less s·Px; see ``identity``."""
        if isinstance(self.scale, float | int):
            kept = (1 + self.scale) * x if self.identity else x
            return torch.add(kept, contrast, alpha=-self.scale)
        if not isinstance(self.scale, nn.Parameter):
            scale = self.scale.to(x)
            kept = (1 + scale) * x if self.identity else x
            return torch.addcmul(kept, scale, contrast, value=-1)
        scale = self.scale.exp() if self.log_scale else self.scale
        return (scale * x if self.identity else x) - scale * contrast

    def _fused(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Computes P x as fused attention of x̂ with itself, without the N×N matrix."""
        x_hat = x if self.printed else unit(x)
        q, v = (t.reshape(-1, 1, *t.shape[-2:]) for t in (x_hat, x))
        if mask is not None:
            mask = mask.expand(*x.shape[:-2], *mask.shape[-2:]).reshape(-1, 1, *mask.shape[-2:])
        fused = torch.ops.aten.scaled_dot_product_attention  # not intercepted as the model's
        out = fused(q, q, v, mask, scale=1 / self.temperature)
        return out.view(x.shape)

    def _explicit(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Computes P x, or (P + Pᵀ) x if ``dual``: Pᵀ is the softmax over columns."""
        tau = self.temperature
        similarity = _products(x, tau) if self.printed else _similarity(x, tau)
        if mask is not None:
            similarity, x = similarity.masked_fill(~mask, -torch.inf), x * mask.mT
        rows = similarity.softmax(dim=-1)
        return (rows + rows.mT if self.dual else rows).to(x.dtype) @ x


def _similarity(x: Tensor, temperature: float) -> Tensor:
    """Computes x̂x̂ᵀ/τ. Shapes: (..., N, C) -> (..., N, N).

    On a CPU the norms come from the diagonal of xxᵀ, and the division takes N² operations instead
    of NC. A GPU needs more kernels for this, and in half precision squares could overflow, so in
    these two cases x̂ is computed.
    """
    if x.is_cuda or x.dtype in HALF or torch.is_autocast_enabled(x.device.type):
        x_hat = unit(x)
        similarity = x_hat @ x_hat.mT
        return similarity if temperature == 1 else similarity / temperature
    gram = x @ x.mT
    squares = gram.diagonal(dim1=-2, dim2=-1)
    inverse = (temperature * squares.masked_fill(squares < EPS**2, torch.inf)).rsqrt()
    return gram * inverse.unsqueeze(-1) * inverse.unsqueeze(-2)


def _products(x: Tensor, temperature: float) -> Tensor:
    """Computes xxᵀ/τ, in float32 if x is in float16, where it could overflow."""
    with torch.autocast(x.device.type, enabled=False):
        wide = x.float() if x.dtype == torch.float16 else x
        return wide @ wide.mT / temperature


def _check(
    scale: float | Tensor,
    temperature: float,
    learnable: bool,
    positive: bool,
    negatives: int | None,
) -> None:
    check_finite("scale", scale)
    check_temperature(temperature)
    if positive and not learnable:
        raise InputError("aggregator.positive: set aggregator.learnable=true, or positive=false")
    if learnable and not ((count := torch.as_tensor(scale).numel()) == 1 and scale > 0):
        got = scale if count == 1 else f"{count}; set learnable=false for several"
        raise InputError(f"aggregator.scale: expected one number above 0 if learnable, got {got}")
    if negatives is not None:
        check_counts(negatives=negatives)


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
