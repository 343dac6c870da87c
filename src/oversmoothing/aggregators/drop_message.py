"""DropMessage (Fang et al., DropMessage: Unifying Random Dropping for Graph Neural Networks,
AAAI 2023, arXiv:2204.10037).

.. math:: \\mathrm{mixed}_{ic} = \\sum_j M_{ij} \\frac{ε_{ijc}}{1 − δ} V_{jc},
          \\quad ε_{ijc} ∼ \\mathrm{Bernoulli}(1 − δ)

Dropout, DropEdge and DropNode draw one ε for many entries of the messages; here each has its own.
"""

import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.drop_edge import Dropping


class DropMessage(Dropping):
    """Drops entries of the messages of a graph convolution in training, also those of self-loops.

    The others are divided by 1 − δ, so the mean over draws is the plain convolution. The results
    equal those of the authors' layer (zjunet/DropMessage, 1b52da82). Messages of all edges are in
    memory, E × C numbers, where a sparse product needs none.

    Args:
        rate: δ, the share of the entries.

    Raises:
        InputError: the rate is not at least 0 and below 1.

    Shapes: messages (E, ...) -> (E, ...).
    """

    site = "messages"

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__(rate)

    def forward(self, messages: Tensor) -> Tensor:
        return F.dropout(messages, self.rate, self.training)
