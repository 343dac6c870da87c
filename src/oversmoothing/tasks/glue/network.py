"""Sentence classifier: a backbone and a linear layer."""

from torch import Tensor, nn

from oversmoothing.backbones.bert.bert import BERT

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
        """Return logits or scores. Shapes: each (B, N) -> (B, K or 1)."""
        return self.classifier(self.dropout(self.backbone(tokens, mask, types)))
