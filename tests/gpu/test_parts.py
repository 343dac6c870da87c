"""Aggregators and metrics on a device give the numbers of the CPU."""

import pytest
import torch
from every_aggregator import EVERY, C, apply, build
from torch import Tensor
from torch_geometric.nn import GCN

import oversmoothing as osm
from oversmoothing.aggregators.base import Context
from oversmoothing.lab.tasks.overlap import Confusion
from oversmoothing.lab.tasks.wsss.crf import dense_crf
from oversmoothing.lab.tasks.wsss.par import PAR

N = 300


def results(name: str, context: Context, x: Tensor) -> list[Tensor]:
    """Returns output and gradients in float64."""
    aggregator, x = build(name).to(x), x.requires_grad_()
    if name == "re_attention":  # torch's batch norm of a nearly constant map needs float64
        aggregator.norm = None
    out = apply(aggregator, x, context)
    if out.requires_grad:
        (out * out.detach().cos()).sum().backward()
    gradients = [p.grad for p in (x, *aggregator.parameters()) if p.grad is not None]
    return [value.double().cpu() for value in (out.detach(), *gradients)]


@pytest.mark.parametrize("graph", [False, True], ids=["tokens", "graph"])
@pytest.mark.parametrize("name", EVERY)
def test_aggregators_agree_with_float64_on_the_cpu(name: str, graph: bool, device: str) -> None:
    draw = torch.Generator().manual_seed(0)
    pairs = torch.randint(N, (2, 900), generator=draw)
    edges = torch.cat([pairs, pairs.flip(0), torch.arange(N).expand(2, -1)], dim=1).unique(dim=1)
    x = torch.randn(2, N, C, generator=draw, dtype=torch.float64)
    here = Context(edges=edges, num_nodes=N) if graph else Context()
    there = Context(edges=edges.to(device), num_nodes=N) if graph else Context()
    found = results(name, there, x.to(device, torch.float32))
    for ours, exact in zip(found, results(name, here, x), strict=True):
        assert (ours - exact).norm() <= 1e-4 * exact.norm() + 1e-7


@pytest.mark.parametrize("method", ["drop_node", "drop_message", "half_hop"])
def test_what_drops_parts_of_a_graph_runs_on_a_device(method: str, device: str) -> None:
    torch.manual_seed(0)
    network, x = GCN(8, 16, 3, 4), torch.randn(30, 8)
    edges = torch.randint(30, (2, 90))
    osm.apply(network, method)
    with torch.no_grad():
        expected = network.eval()(x, edges)
        found = network.to(device)(x.to(device), edges.to(device))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)
    network.train()(x.to(device), edges.to(device)).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


def test_masks_on_a_device_are_counted_as_on_the_cpu(device: str) -> None:
    draw = torch.Generator().manual_seed(0)
    truth, prediction = torch.randint(21, (2, 3, 40, 50), generator=draw)
    here, there = Confusion(21), Confusion(21)
    here.update(prediction, truth)
    there.update(prediction.to(device), truth)
    assert torch.equal(here.matrix, there.matrix.cpu())


def test_the_dense_crf_agrees_with_the_cpu(device: str) -> None:
    draw = torch.Generator().manual_seed(0)
    image = torch.randint(256, (3, 20, 24), generator=draw, dtype=torch.uint8)
    p = torch.randn(4, 20, 24, generator=draw).softmax(dim=0)
    found = dense_crf(image, p.to(device))
    assert found.device.type == device
    torch.testing.assert_close(found.cpu(), dense_crf(image, p), atol=1e-4, rtol=0)


def test_pixel_adaptive_refinement_agrees_with_the_cpu(device: str) -> None:
    draw = torch.Generator().manual_seed(0)
    images, masks = (torch.rand(2, C, 37, 41, generator=draw) for C in (3, 11))
    found = PAR(iterations=3).to(device)(images.to(device), masks.to(device))
    torch.testing.assert_close(found.cpu(), PAR(iterations=3)(images, masks), atol=1e-5, rtol=0)
