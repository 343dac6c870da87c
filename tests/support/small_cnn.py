"""Small convolutional networks with random weights, and an aggregator to put after them."""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context, Instead
from oversmoothing.lab.backbones.cnn import CNN, batch_norms


class Swap(Instead):
    """A linear map over channels, then the mean over tokens added."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        y = self.linear(x)
        return y + y.mean(dim=-2, keepdim=True)


class Cut(Swap):
    """Keeps gradients from its input, as EMANet's preset, and asks for a ReLU."""

    passes_gradient = False
    relu_after = True

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return super().forward(x.detach(), context)


def cnn(*aggregators: object, **options: object) -> CNN:
    """The same random weights in every call, in evaluation mode; no residual branch starts at 0."""
    torch.manual_seed(0)
    small = {"name": "resnet18", "weights": "none", "multi_grid": None, "dim": 24}
    model = CNN(list(aggregators), **{**small, **options}).eval()
    torch.manual_seed(1)
    if not model.pretrained:
        for norm in batch_norms(model.network):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
    return model


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))
