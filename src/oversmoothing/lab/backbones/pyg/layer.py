"""One layer of a network: dropout, convolution, aggregators, ReLU."""

import math

import torch
from torch import Tensor, nn

from oversmoothing.adapters.pyg import InsidePropagate
from oversmoothing.adapters.sites import Chain, Sites
from oversmoothing.aggregators.base import Context


class Layer(nn.Module):
    """One convolution with its aggregators.

    Args:
        conv: the convolution.
        sites: builds the aggregators.
        mixed: channels that the convolution mixes; 0 if no aggregator asks for it.
        dim: channels of the output.
        dropout: rate before the convolution.
        logits: whether the output are the logits; then neither aggregators nor ReLU follow.
        like: the layer whose aggregators this one shares; None: it has its own.

    Attributes:
        identity: initial residual and identity map after the convolution, or None.
        takes_sparse: whether the convolution takes sparse features; if not, they are made dense.
    """

    def __init__(
        self,
        conv: nn.Module,
        sites: Sites,
        mixed: int,
        dim: int,
        dropout: float,
        logits: bool,
        like: "Layer | None" = None,
    ) -> None:
        super().__init__()
        self.conv, self.mixed, self.rate, self.logits = conv, mixed, dropout, logits
        self.identity: IdentityMap | None = None
        self.takes_sparse = False
        if sites.has("inside"):
            inside = like.conv.inside if like else sites.build("inside", mixed)
            InsidePropagate(inside).attach(conv)
        self.after = Chain() if logits else like.after if like else sites.build("after", dim)

    @property
    def reads_edges(self) -> bool:
        """Whether an aggregator after the convolution looks at the edges."""
        return any(aggregator.reads_edges for aggregator in self.after)

    def forward(
        self, h: Tensor, edges: dict[str, Tensor], initial: Tensor, context: Context
    ) -> Tensor:
        """Applies dropout and the convolution, then aggregators and ReLU unless it returns logits.

        Args:
            h: output of the layer before.
            edges: arguments of the convolution besides the features.
            initial: output of the first linear layer.
            context: for aggregators after the convolution.

        Shapes: h (N, C), initial (N, C) -> (N, C').
        """
        h = dropped(h, self.rate, self.training)
        h = h if self.takes_sparse or h.layout == torch.strided else h.to_dense()
        h = self.conv(h, **edges)
        h = h[0] if isinstance(h, tuple) else h  # PANConv also returns its matrix
        if self.identity is not None:
            h = self.identity(h, initial)
        return h if self.logits else self.after(h, context).relu()


class IdentityMap(nn.Module):
    """GCNII's initial residual and identity map (Chen et al., ICML 2020, Eq. 5).

    .. math:: z = (1 − α) h + α h_0, \\quad h ← (1 − β) z + β z W

    Args:
        channels: C.
        alpha: α.
        lam: λ of β = log(λ/l + 1); 0: no identity map.
        layer: l, from 1.
    """

    def __init__(self, channels: int, alpha: float, lam: float, layer: int) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, math.log(lam / layer + 1)
        self.linear = nn.Linear(channels, channels, bias=False) if lam else None

    def forward(self, h: Tensor, initial: Tensor) -> Tensor:
        z = torch.lerp(h, initial, self.alpha)
        return z if self.linear is None else torch.lerp(z, self.linear(z), self.beta)


def dropped(x: Tensor, rate: float, training: bool) -> Tensor:
    """Applies dropout; sparse features (CSR) keep their pattern."""
    if not (training and rate):
        return x
    if x.layout != torch.strided:
        pattern, values = (x.crow_indices(), x.col_indices()), dropped(x.values(), rate, training)
        return torch.sparse_csr_tensor(*pattern, values, x.shape, check_invariants=False)
    keep = torch.empty_like(x).uniform_() >= rate  # faster than bernoulli_ on a CPU
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))
