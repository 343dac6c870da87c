"""Sentence classifier: a backbone and a linear layer, its loss and its predictions."""

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.training.batch import Batch

INITIAL = 0.02  # standard deviation of new weights (BERT's)


class Network(nn.Module):
    """Backbone, dropout and a linear layer on the pooled CLS token.

    Args:
        backbone: BERT or ALBERT.
        num_classes: K; 0: one output, a score.
        dropout: rate before the linear layer.
    """

    def __init__(self, backbone: BERT, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.backbone, self.dropout = backbone, nn.Dropout(dropout)
        self.classifier = nn.Linear(backbone.dim, num_classes or 1)
        nn.init.normal_(self.classifier.weight, std=INITIAL)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Returns logits or scores. Shapes: each (B, N) -> (B, K or 1)."""
        return self.classifier(self.dropout(self.backbone(tokens, mask, types)))


class Objective:
    """Cross-entropy for classes, mean squared error for scores.

    Args:
        num_classes: K; 0: scores.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def prepare(self, batch: Batch, step: int) -> Batch:
        """Returns the batch unchanged."""
        return batch

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Returns this part's share of the mean loss over the batch."""
        share = len(part["label"]) / part["batch_size"]
        out = model(part["tokens"], part["mask"], part["types"]).float()
        if self.num_classes:
            return {"cls": share * F.cross_entropy(out, part["label"])}
        return {"mse": share * F.mse_loss(out[:, 0], part["label"])}


def predicted(out: Tensor) -> Tensor:
    """Returns classes or scores. Shapes: (B, K or 1) -> (B,)."""
    return out.argmax(dim=1) if out.shape[1] > 1 else out[:, 0]
