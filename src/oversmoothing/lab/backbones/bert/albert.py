"""ALBERT of transformers with aggregators in its layer (Lan et al., ICLR 2020).

The sites are those of BERT.
"""

from typing import ClassVar

from torch import nn

from oversmoothing.adapters import blocks
from oversmoothing.adapters.sites import Factory
from oversmoothing.lab.backbones.bert.bert import BERT, imported


class ALBERT(BERT):
    """ALBERT without classifier: one layer, applied ``depth`` times, and narrower embeddings.

    The applications share the aggregators as they share the other parameters. The positions have
    the names of BERT's; ContraNorm's code numbers them differently, see ``BERT``.

    Args:
        aggregators: factories.
        name, weights, sha256, depth, dim, heads, ffn, vocabulary, dropout, position, mask_padding:
            as in ``BERT``; the output of the FFN has no dropout.
        embedding: channels of the embeddings.
    """

    layout: ClassVar[blocks.LayerPlaces] = blocks.ALBERT

    def __init__(
        self,
        aggregators: list[Factory],
        name: str = "albert-base-v2",
        weights: str = "hub",
        sha256: str | None = None,
        depth: int = 12,
        dim: int = 768,
        heads: int = 12,
        ffn: int = 3072,
        vocabulary: int = 30000,
        dropout: float = 0.0,
        position: str | list[str] = "attention_sum",
        mask_padding: bool = False,
        embedding: int = 128,
    ) -> None:
        self.embedding = embedding
        sizes = (depth, dim, heads, ffn, vocabulary)
        super().__init__(
            aggregators, name, weights, sha256, *sizes, dropout, position, mask_padding
        )

    def _create(self, sizes: dict) -> nn.Module:
        config = imported().AlbertConfig(**sizes, embedding_size=self.embedding)
        return imported().AlbertModel(config)

    def _layers(self) -> list[nn.Module]:
        groups = self.network.encoder.albert_layer_groups
        return [layer for group in groups for layer in group.albert_layers]
