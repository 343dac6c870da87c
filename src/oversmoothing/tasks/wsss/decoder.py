"""LargeFOV segmentation head (DeepLab; sizes as in ToCo)."""

from torch import Tensor, nn


class LargeFOV(nn.Module):
    """Two dilated 3×3 convolutions and a 1×1 one, all without bias.

    Args:
        dim: channels of the feature map.
        num_labels: 1 + K.
        hidden: channels between.
        dilation: of the 3×3 convolutions.

    Shapes: (B, C, h, w) -> (B, 1 + K, h, w).
    """

    def __init__(self, dim: int, num_labels: int, hidden: int = 512, dilation: int = 5) -> None:
        super().__init__()
        wide = {"kernel_size": 3, "padding": dilation, "dilation": dilation, "bias": False}
        self.layers = nn.Sequential(
            nn.Conv2d(dim, hidden, **wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, hidden, **wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, num_labels, kernel_size=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
