"""Convolutions in bf16 on a CPU: which are computed in fp32, and that they are exact."""

from types import SimpleNamespace

import pytest
import torch
from small_cnn import cnn, images
from torch import Tensor, nn

from oversmoothing.lab.backbones.cnn import convolving
from oversmoothing.lab.tasks.overlap import upsampled
from oversmoothing.lab.tasks.segmentation import PixelCrossEntropy

CPU = torch.device("cpu")


def output_and_gradients(conv: nn.Conv2d, x: Tensor, *, exact: bool) -> list[Tensor]:
    x, conv.weight.grad = x.clone().requires_grad_(), None
    with torch.autocast("cpu", torch.bfloat16, enabled=not exact), convolving(CPU):
        y = conv(x)
    out = y.bfloat16()
    out.backward(torch.linspace(-1, 1, out.numel()).view_as(out).bfloat16())
    return [y.detach(), x.grad, conv.weight.grad]


@pytest.mark.parametrize("how", [{"stride": 2}, {"dilation": 2}, {"stride": 2, "bias": False}])
def test_depthwise_convolutions_with_stride_or_dilation_are_in_fp32(how: dict) -> None:
    torch.manual_seed(0)
    conv, x = nn.Conv2d(8, 8, 3, groups=8, **how), torch.randn(2, 8, 9, 9).bfloat16()
    y, *gradients = output_and_gradients(conv, x, exact=False)
    exact, *expected = output_and_gradients(conv, x.float(), exact=True)
    assert y.dtype == torch.bfloat16 and torch.equal(y, exact.bfloat16())
    assert torch.equal(gradients[0], expected[0].bfloat16())
    assert torch.equal(gradients[1], expected[1])


@pytest.mark.parametrize("how", [{"groups": 8}, {"stride": 2}])
def test_other_convolutions_stay_in_bf16(how: dict) -> None:
    conv, x = nn.Conv2d(8, 8, 3, **how), torch.randn(2, 8, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        expected = conv(x)
        with convolving(CPU):
            assert torch.equal(conv(x), expected)


@torch.no_grad()
def test_a_network_in_bf16_is_that_of_fp32_but_for_rounding() -> None:
    network, x = cnn(name="mobilenetv2_050", output_stride=16), images(2, 3, 65, 65)
    exact = network(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(x)[0].float()
    assert 0 < (rounded - exact).norm() < 0.2 * exact.norm()


def test_the_loss_is_that_of_the_whole_batch() -> None:
    """It is summed image by image on a CPU."""
    torch.manual_seed(0)
    mask = torch.randint(0, 4, (3, 17, 17)).masked_fill(torch.rand(3, 17, 17) < 0.2, 255)
    found, expected = (torch.randn(3, 4, 3, 3, dtype=torch.float64, requires_grad=True)
                       for _ in range(2))  # fmt: skip
    expected.data = found.data.clone()
    part = {"image": found, "mask": mask, "batch_size": 6}
    loss = PixelCrossEntropy(0.0).losses(lambda x: SimpleNamespace(seg=x), part, 0)["seg"]
    each = nn.functional.cross_entropy(upsampled(expected, (17, 17)), mask, ignore_index=255,
                                       reduction="sum")  # fmt: skip
    torch.testing.assert_close(loss, each / (6 * 17 * 17), check_dtype=False)
    loss.backward()
    (each / (6 * 17 * 17)).backward()
    torch.testing.assert_close(found.grad, expected.grad)
