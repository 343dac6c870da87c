"""BERT of transformers with aggregators in its layers (Devlin et al., NAACL 2019)."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.bert import weights as bert_weights
from oversmoothing.backbones.bert.padding import Padding
from oversmoothing.backbones.bert.sites import ATTENTION, Layout, Place, equip, mix
from oversmoothing.errors import InputError

PLACES = {  # in brackets: ContraNorm's number for BERT
    "input": Place("attention", True),  # 1
    "context": Place("attention.output.dense", True),  # 2
    "projection": Place("attention.output.dropout", False),  # 3
    "attention_norm": Place("attention.output.LayerNorm", False),  # 4
    "ffn": Place("output.dropout", False),  # 5
    "output": Place("output.LayerNorm", False),  # 6
    "attention_sum": Place("attention.output.LayerNorm", True),  # 7
    "ffn_sum": Place("output.LayerNorm", True),  # 8
}
TOKENS = 512  # positions that there are embeddings for


class BERT(nn.Module):
    """BERT without classifier. Layers are post-norm: x ← LN(x + attention), x ← LN(x + FFN).

    Aggregators are put in once the weights are loaded, instances of their own in every layer;
    without any, the numbers are transformers', bit by bit. Those inside act on the heads' context
    and values, (B, heads, N, C/heads); those instead take the attention's place, whose projections
    are dropped; those after act on (B, N, C) at ``position``, of which there are, with their
    numbers in ContraNorm's code (``--pos``; its ALBERT counts otherwise):

    ================  ====  ======  ===========================================================
    position          BERT  ALBERT  acts on
    ================  ====  ======  ===========================================================
    input             1     1       what a layer takes, its residual included
    context           2     2       the heads' joined context, before the output projection
    projection        3     3       the output projection, after dropout, before the residual
    attention_sum     7     4       attention + residual, before the first norm (the paper's)
    attention_norm    4     5       what comes out of the first norm
    ffn               5     6       the FFN's output, after dropout, before the residual
    ffn_sum           8     7       FFN + residual, before the second norm
    output            6     8       what comes out of the second norm
    ================  ====  ======  ===========================================================

    Args:
        aggregators: factories.
        name: on the hub, of weights and tokenizer.
        weights: ``hub``, ``none`` or the path of a file, see ``bert_weights.load``.
        sha256: of that file, or its first 8 or more hex digits; null: not checked.
        depth: number of layers.
        dim: channels C.
        heads: of the attention; divide ``dim``.
        ffn: channels within the FFN.
        vocabulary: number of tokens that there are embeddings for.
        dropout: of embeddings, branches and attention.
        position: where aggregators after the mixing act; a list: at each of these places.
        mask_padding: keep padding from aggregators; off, it takes part, as in ContraNorm's code.

    Attributes:
        prefix: tokens before the words (CLS). pretrained: whether weights were loaded.

    Raises:
        InputError: transformers is missing, a size out of range, weights that cannot be had or do
            not fit, no such position, or aggregators that exclude one another.
    """

    layout: ClassVar[Layout] = Layout("attention.self", "attention.output.dense", PLACES)
    prefix: ClassVar[int] = 1

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
        name: str = "bert-base-uncased",
        weights: str = "hub",
        sha256: str | None = None,
        depth: int = 12,
        dim: int = 768,
        heads: int = 12,
        ffn: int = 3072,
        vocabulary: int = 30522,
        dropout: float = 0.1,
        position: str | list[str] = "attention_sum",
        mask_padding: bool = False,
    ) -> None:
        super().__init__()
        _check(depth=depth, dim=dim, heads=heads, ffn=ffn, vocabulary=vocabulary)
        _check_fit(dim, heads, dropout)
        positions = self._positions(position)
        self.name, self.pretrained = name, weights != "none"
        self.dim, self.depth, self.vocabulary, self.max_length = dim, depth, vocabulary, TOKENS
        sizes = {
            "num_hidden_layers": depth,
            "hidden_size": dim,
            "num_attention_heads": heads,
            "intermediate_size": ffn,
            "vocab_size": vocabulary,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "max_position_embeddings": TOKENS,
        }
        self.network = self._create(sizes)
        bert_weights.load(self.network, name, weights, sha256, depth)
        self.padding = Padding(mask_padding, self.prefix)
        layers = self._layers()
        sited = [equip(x, self.layout, aggregators, positions, self.padding) for x in layers]
        if any(sited):
            _register()
            self.network.set_attn_implementation(ATTENTION)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """CLS of sentences, through the network's pooler (dense, tanh).

        Args:
            tokens: indices in the vocabulary, CLS first.
            mask: true for tokens, false for the padding behind them.
            types: 0 in a first sentence, 1 in a second one.

        Shapes: each (B, N) -> (B, C).
        """
        return self._run(tokens, mask, types).pooler_output

    def layers(self, tokens: Tensor, mask: Tensor, types: Tensor) -> list[Tensor]:
        """The tokens after every layer. Shapes: each (B, N) -> depth × (B, N, C)."""
        states = self._run(tokens, mask, types, output_hidden_states=True).hidden_states
        return list(states[1:])  # the first are the embeddings

    def _run(self, tokens: Tensor, mask: Tensor, types: Tensor, **options: bool) -> Any:
        """transformers' output."""
        self.padding.begin(mask)
        inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types}
        return self.network(**inputs, **options)

    def _positions(self, position: str | list[str]) -> list[str]:
        positions = [position] if isinstance(position, str) else list(dict.fromkeys(position))
        if absent := [p for p in positions if p not in self.layout.places]:
            raise InputError(
                f"backbone.position: expected {', '.join(self.layout.places)}, or a list of "
                f"these, got {absent[0]!r}"
            )
        return positions

    def _create(self, sizes: dict) -> nn.Module:
        """The network of transformers with random weights."""
        transformers = imported()
        return transformers.BertModel(transformers.BertConfig(**sizes))

    def _layers(self) -> list[nn.Module]:
        """Layers with parameters of their own."""
        return list(self.network.encoder.layer)


def imported() -> ModuleType:
    """The module transformers, which only this needs.

    Raises:
        InputError: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"backbone: needs transformers ({error}); pip install -e '.[text]'"
        ) from error
    return transformers


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, mix)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def _check(**sizes: int) -> None:
    for key, value in sizes.items():
        if value < 1:
            raise InputError(f"backbone.{key}: expected 1 or more, got {value}")


def _check_fit(dim: int, heads: int, dropout: float) -> None:
    if dim % heads:
        raise InputError(f"backbone.heads: expected a number that divides dim={dim}, got {heads}")
    if not 0 <= dropout < 1:
        raise InputError(f"backbone.dropout: expected 0 or more, below 1, got {dropout}")
