"""Multi-grid: dilations that grow within the last stage of a ResNet.

Chen et al., Rethinking Atrous Convolution (DeepLabv3), Sec. 3.1; the first block is treated as in
EMANet's code.
"""

from torch import nn

from oversmoothing.errors import InputError


def set_multi_grid(stage: nn.Sequential, factors: list[int]) -> None:
    """Multiplies the dilations of all blocks of a dilated stage but the first.

    The first block is where the stride was, and keeps half the dilation of the stage. With
    [1, 2, 4]: 2, 8, 16 at output stride 8, and 1, 4, 8 at 16.

    Args:
        stage: of timm's ResNet.
        factors: one a block, the first is 1.

    Raises:
        InputError: other factors.
    """
    fits = len(factors) == len(stage) and factors[0] == 1 and min(factors) >= 1
    if not fits:
        raise InputError(
            f"backbone.multi_grid: expected {len(stage)} whole numbers from 1, one a block of the "
            f"last stage and 1 for the first, got {list(factors)}; null: no multi-grid"
        )
    for block, factor in zip(stage, factors):
        for conv in block.modules():
            if isinstance(conv, nn.Conv2d) and conv.kernel_size != (1, 1):
                conv.dilation = tuple(factor * d for d in conv.dilation)
                conv.padding = tuple(factor * p for p in conv.padding)
