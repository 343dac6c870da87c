"""ContraNorm (Guo et al., ICLR 2023: A Contrastive Learning Perspective on Oversmoothing).

.. math:: x ← x − s · P x, \\quad P = \\mathrm{softmax}(x̂x̂ᵀ/τ), \\quad x̂_i = x_i/‖x_i‖

One step against the uniformity loss: every token is pushed from those it resembles. The authors'
code has five variants under this name; the options below span them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context
from oversmoothing.errors import InputError

EPS = 1e-12  # of a norm, as torch's normalize has it
HALF = (torch.float16, torch.bfloat16)


class ContraNorm(After):
    """ContraNorm over tokens; quadratic in N, but in memory only up to N = C and where ``dual``.

    Args:
        dim: channels C.
        scale: s; 0 leaves the tokens as they are (with ``layernorm``: plain LayerNorm).
        temperature: τ of the softmax, above 0.
        identity: (1 + s) x − s·Px, as on graphs and in BERT; else x − s·Px, as in ViT and ALBERT.
        dual: add the softmax over columns to P (the loss's second term, which the
            stop-gradient form drops); forms the N×N matrix.
        pre_norm: x̂ takes the place of x everywhere.
        learnable: one s per channel, learned from ``scale``; with ``identity`` σ⊙x − σ⊙Px (the
            code has no 1 + here).
        positive: learn log s, so that s stays above 0; needs ``learnable``.
        layernorm: LayerNorm at the end, as in ViT.
        mask_neighbours: on a graph, a node is compared with strangers only (neither itself nor a
            neighbour); no effect where the mixing is dense.

    Raises:
        InputError: temperature not above 0, positive without learnable, or learnable with
            scale not above 0.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        dim: int,
        scale: float = 1.0,
        temperature: float = 1.0,
        identity: bool = True,
        dual: bool = False,
        pre_norm: bool = False,
        learnable: bool = False,
        positive: bool = False,
        layernorm: bool = False,
        mask_neighbours: bool = True,
    ) -> None:
        super().__init__()
        _check(scale, temperature, learnable, positive)
        self.temperature = temperature
        self.identity = identity
        self.dual = dual
        self.pre_norm = pre_norm
        self.mask_neighbours = mask_neighbours
        self.log_scale = positive
        self.scale: float | nn.Parameter = scale
        if learnable:
            initial = torch.full((dim,), float(scale))
            self.scale = nn.Parameter(initial.log() if positive else initial)
        self.norm = nn.LayerNorm(dim, eps=1e-6) if layernorm else nn.Identity()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        *_, N, C = x.shape
        x = F.normalize(x, dim=-1) if self.pre_norm else x
        strangers = context.strangers if self.mask_neighbours else None
        # Up to N = C the N×N matrix is no larger than the tokens, and it is faster.
        explicit = self.dual or N <= C
        contrast = self._explicit(x, strangers) if explicit else self._fused(x, strangers)
        return self.norm(self._pushed(x, contrast))

    def _pushed(self, x: Tensor, contrast: Tensor) -> Tensor:
        """x or (1 + s) x, minus s·Px."""
        if isinstance(self.scale, float | int):
            kept = (1 + self.scale) * x if self.identity else x
            return torch.add(kept, contrast, alpha=-self.scale)
        scale = self.scale.exp() if self.log_scale else self.scale
        return (scale * x if self.identity else x) - scale * contrast

    def _fused(self, x: Tensor, strangers: Tensor | None) -> Tensor:
        """P x as attention of x̂ with itself: no N×N matrix."""
        mask, lonely = _attendable(strangers)
        x_hat = F.normalize(x, dim=-1)
        heads = [t.reshape(-1, 1, *t.shape[-2:]) for t in (x_hat, x_hat, x)]
        out = F.scaled_dot_product_attention(*heads, attn_mask=mask, scale=1 / self.temperature)
        out = out.view(x.shape)
        return out if lonely is None else out.masked_fill(lonely, 0.0)

    def _explicit(self, x: Tensor, strangers: Tensor | None) -> Tensor:
        """P x; dual: (D⁻¹A + AD⁻¹) x. A is symmetric: its column softmax is P transposed."""
        mask, lonely = _attendable(strangers)
        similarity = _similarity(x, self.temperature)
        if mask is not None:
            similarity = similarity.masked_fill(~mask, -torch.inf)
        rows = similarity.softmax(dim=-1)
        if lonely is not None:
            rows = rows.masked_fill(lonely, 0.0)
        return (rows + rows.mT if self.dual else rows) @ x


def _similarity(x: Tensor, temperature: float) -> Tensor:
    """x̂x̂ᵀ/τ. Shapes: (..., N, C) -> (..., N, N).

    By norms from the diagonal of xxᵀ, which takes N² steps where x̂ takes NC; not in half precision,
    whose range squares leave.
    """
    if x.dtype in HALF or torch.is_autocast_enabled(x.device.type):
        x_hat = F.normalize(x, dim=-1)
        return x_hat @ x_hat.mT / temperature
    gram = x @ x.mT
    inverse = (temperature * gram.diagonal(dim1=-2, dim2=-1).clamp(min=EPS**2)).rsqrt()
    return gram * inverse.unsqueeze(-1) * inverse.unsqueeze(-2)


def _attendable(strangers: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The mask to attend with, and the rows (N, 1) that have nobody to be compared with, if any.

    A softmax over nothing is NaN, so such rows attend to all and their result is dropped.
    """
    if strangers is None:
        return None, None
    lonely = ~strangers.any(dim=-1, keepdim=True)
    return (strangers | lonely, lonely) if lonely.any() else (strangers, None)


def _check(scale: float, temperature: float, learnable: bool, positive: bool) -> None:
    if not temperature > 0:
        raise InputError(f"aggregator.temperature: expected a number above 0, got {temperature}")
    if positive and not learnable:
        raise InputError("aggregator.positive: needs aggregator.learnable=true, or set it to false")
    if learnable and not scale > 0:
        raise InputError(f"aggregator.scale: to be learned it must start above 0, got {scale}")
