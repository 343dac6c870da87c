"""Reference GCNs, trained one seed after another with dense features and N×N matrices.

They are simple modules that follow the recipe of Table 5.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data.graph import Graph

HIDDEN, DROPOUT = 32, 0.6


def adjacency(graph: Graph) -> Tensor:
    """Returns D⁻¹(A + I) as COO (N, N)."""
    N = graph.num_nodes
    loops = torch.arange(N, device=graph.edges.device).expand(2, -1)
    indices = torch.cat([graph.edges, loops], dim=1)
    ones = torch.ones(indices.shape[1], device=indices.device)
    a = torch.sparse_coo_tensor(indices, ones, (N, N), check_invariants=True).coalesce()
    degree = a.sum(dim=1).to_dense()
    values = a.values() / degree[a.indices()[0]]
    return torch.sparse_coo_tensor(a.indices(), values, (N, N), check_invariants=True).coalesce()


class Convolution(nn.Module):
    """Computes Ã x, then applies the weights. Shapes: x (N, C_in) -> (N, C_out)."""

    def __init__(self, c_in: int, c_out: int, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        bound = 1 / math.sqrt(c_out)
        self.weight = nn.Parameter(torch.empty(c_in, c_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1, c_out).uniform_(-bound, bound))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        mixed = torch.spmm(adj, x)
        if self.gamma:
            mixed = mixed + self.gamma * x.mean(dim=0)
        return mixed @ self.weight + self.bias


class ReferenceGCN(nn.Module):
    """The network of one seed of Table 5.

    Args:
        method: none, layernorm, pairnorm, contranorm or centered (γ = −1); all except none are
            followed by one shared LayerNorm.
        dims: channels from the features to the classes.

    Shapes: x (N, F) -> logits (N, classes).
    """

    def __init__(self, method: str, dims: list[int]) -> None:
        super().__init__()
        gamma = -1.0 if method == "centered" else 0.0
        self.layers = nn.ModuleList(Convolution(*pair, gamma) for pair in pairwise(dims))
        self.method = method
        self.layer_norm = nn.Identity() if method == "none" else nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(F.dropout(x, DROPOUT, self.training), adj)
            x = self.layer_norm(self._norm(x, adj)).relu()
        return last(F.dropout(x, DROPOUT, self.training), adj)

    def _norm(self, x: Tensor, adj: Tensor) -> Tensor:
        if self.method == "pairnorm":
            x = x - x.mean(dim=0)
            return x / (1e-6 + x.square().sum(dim=1).mean()).sqrt()
        if self.method == "contranorm":
            x_hat = F.normalize(x, dim=1)
            similarity = (x_hat @ x_hat.T).masked_fill(adj.to_dense() > 1e-5, -torch.inf)
            return 2 * x - similarity.softmax(dim=1) @ x
        return x


def copy_weights(ours: GCN, nets: list[nn.Module]) -> None:
    """Copies our weights into the network of every seed; LayerNorms have equal initial values."""
    with torch.no_grad():
        for seed, net in enumerate(nets):
            for layer, weight, bias in zip(net.layers, ours.weights, ours.biases):
                layer.weight.copy_(weight[seed])
                layer.bias.copy_(bias[seed])
