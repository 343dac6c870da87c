"""The tuned GCN of Luo et al. (NeurIPS 2024) in dense float64."""

import torch

from oversmoothing.lab.backbones.gcn import GCN

EDGES = torch.tensor([[0, 1, 1, 2, 3, 2], [1, 0, 2, 1, 2, 3]])


def test_each_layer_adds_a_linear_map_of_its_input_and_a_linear_layer_reads_out() -> None:
    x = torch.rand(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"depth": 3, "hidden": 6, "linear": True, "readout": True, "init": "orthogonal"}
    net = GCN([], x, EDGES, 2, [0], adjacency="symmetric", **options).double().eval()
    dense = torch.eye(4).double().index_put(tuple(EDGES), torch.ones(()).double())
    root = dense.sum(dim=1).rsqrt()
    mix, h = root[:, None] * dense * root, x
    for weight, own, bias in zip(net.weights, net.linear, net.biases):
        h = (mix @ h @ weight[0] + h @ own[0] + bias[0]).relu()
    expected = h @ net.dense[0].weight[0] + net.dense[0].bias[0]
    torch.testing.assert_close(net()[0], expected, rtol=1e-6, atol=1e-7)
