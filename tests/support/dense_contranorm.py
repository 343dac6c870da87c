"""A small graph for ContraNorm over non-neighbours, and its formula with N×N matrices."""

from functools import partial

import torch
import torch.nn.functional as F
from tokens import random_tokens
from torch import Tensor

from oversmoothing.aggregators.base import Context

N, C = 70, 6


def graph(directed: bool = False) -> Context:
    """A random graph with repeated edges; node 0 neighbours everyone, node 1 only itself."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(2, N, (2, 150), generator=generator)
    edges = edges if directed else torch.cat([edges, edges.flip(0)], dim=1)
    hub = torch.stack([torch.zeros(N, dtype=torch.long), torch.arange(N)])
    loops = torch.arange(N).expand(2, -1)
    return Context(edges=torch.cat([edges, hub, hub.flip(0), loops], dim=1), num_nodes=N)


tokens = partial(random_tokens, seed=1)


def dense(x: Tensor, context: Context, temperature: float = 1.0, dual: bool = False) -> Tensor:
    """P x or (P + Pᵀ) x by its definition, with N×N matrices."""
    x_hat = F.normalize(x, dim=-1)
    hidden = torch.zeros(x.shape[-2], x.shape[-2], dtype=torch.bool)
    hidden[context.edges[0], context.edges[1]] = True
    P = (x_hat @ x_hat.mT / temperature).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    P = P.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
    return (P + P.mT if dual else P) @ x


def both(form, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a form gives, and the gradient of a fixed function of it."""
    x = x.detach().clone().requires_grad_()
    out = form(x)
    upstream = tokens(*out.shape).cos().to(x.dtype)
    return out.detach(), torch.autograd.grad(out, x, upstream)[0]
