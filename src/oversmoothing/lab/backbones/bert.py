"""BERT (Devlin et al., NAACL 2019), also with the norms first, and ALBERT (Lan et al., ICLR 2020).

The networks are those of transformers. The sites inside and instead are in the self-attention of
every layer. The site after is at one or more of eight positions in the layer, see ``BERT``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oversmoothing.adapters import blocks
from oversmoothing.adapters.blocks import LayerPlaces
from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.masks import sentences
from oversmoothing.adapters.site import AfterModule, BeforeModule
from oversmoothing.adapters.sites import SHOWN, SITES, Factory, Sites
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError, install
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.options import Configured, check_positive, check_rate

TOKENS = 512  # number of position embeddings
SIZES = {  # option -> its name in transformers
    "depth": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}


class BERT(Configured):
    """BERT without classifier. Layers are post-norm: x ← LN(x + attention), x ← LN(x + FFN).

    Weights are loaded first; then every layer gets an instance of each aggregator. Without
    aggregators the outputs equal those of transformers bit by bit. ``Inside`` acts on the context
    and the values of each head, (B, heads, N, C/heads). ``Instead`` replaces the attention and its
    projections. ``After`` acts on tokens (B, N, C) at ``position``; the table gives the number of
    each position in ContraNorm's code (``--pos``):

    ================  ====  ======  ===========================================================
    position          BERT  ALBERT  acts on
    ================  ====  ======  ===========================================================
    input             1     1       the input of a layer, including its residual connection
    context           2     2       the joined context of the heads, before the projection
    projection        3     3       the projected context, after dropout, before the residual sum
    attention_sum     7     4       attention + residual, before the first norm (as in the paper)
    attention_norm    4     5       the output of the first norm
    ffn               5     6       the output of the FFN, after dropout, before the residual sum
    ffn_sum           8     7       FFN + residual, before the second norm
    output            6     8       the output of the second norm
    ================  ====  ======  ===========================================================

    Args:
        aggregators: factories.
        name: on the hub, of weights and tokenizer.
        weights: ``hub``, ``none`` or the path of a file, see ``load``.
        sha256: SHA-256 of that file or its first 8 or more hex digits; null: no check.
        depth: number of layers.
        dim: channels C.
        heads: number of attention heads; divides ``dim``.
        ffn: channels inside the FFN.
        vocabulary: number of token embeddings.
        dropout: rate for embeddings, branches and attention.
        position: where aggregators of the site after act: one position or a list.
        mask_padding: hide padding from aggregators; if false, padding takes part, as in
            ContraNorm's code.

    Attributes:
        prefix: number of tokens before the words: 1, CLS.
        pretrained: whether weights were loaded.

    Raises:
        InputError: transformers is not installed, a size is out of range, weights are missing or
            do not fit, a position is unknown, or aggregators exclude each other.
    """

    @dataclass(frozen=True)
    class Options:
        name: str = "bert-base-uncased"
        weights: str = "hub"
        sha256: str | None = None
        depth: int = 12
        dim: int = 768
        heads: int = 12
        ffn: int = 3072
        vocabulary: int = 30522
        dropout: float = 0.1
        position: str | list[str] = "attention_sum"
        mask_padding: bool = False

    layout: ClassVar[LayerPlaces] = blocks.BERT
    offered: ClassVar[Sequence[str]] = (*SITES, SHOWN)
    prefix: ClassVar[int] = 1

    def __init__(self, aggregators: list[Factory], **options: Any) -> None:
        super().__init__()
        own = self.options = self.Options(**options)
        sizes = {key: getattr(own, key) for key in SIZES}
        check_positive(**sizes)
        check_rate("dropout", own.dropout)
        if own.dim % own.heads:
            raise InputError(
                f"backbone.heads: expected a divisor of dim={own.dim}, got {own.heads}"
            )
        positions = self._positions(own.position)
        self.name, self.pretrained, self.max_length = own.name, own.weights != "none", TOKENS
        self.dim, self.depth, self.vocabulary = own.dim, own.depth, own.vocabulary
        named = {SIZES[key]: size for key, size in sizes.items()}
        self.network = self._create(
            hidden_dropout_prob=own.dropout,
            attention_probs_dropout_prob=own.dropout,
            max_position_embeddings=TOKENS,
            **named,
        )
        load(self.network, own.name, own.weights, own.sha256, own.depth)
        self.padding = Padding(own.mask_padding)
        host = f"backbone {type(self).__name__.lower()}"
        sites = Sites(aggregators, own.dim, host, self.offered)
        for layer in self._layers():
            equip(layer, self.layout, sites, positions, Context(prefix=self.prefix), self.padding)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Computes the CLS token of sentences, passed through the pooler (dense, tanh).

        Args:
            tokens: indices in the vocabulary, CLS first.
            mask: true for tokens, false for the padding after them.
            types: 0 for the first sentence, 1 for the second.

        Shapes: each (B, N) -> (B, C).
        """
        return self._run(tokens, mask, types).pooler_output

    def layers(self, tokens: Tensor, mask: Tensor, types: Tensor) -> list[Tensor]:
        """Computes the tokens after every layer. Shapes: each (B, N) -> depth × (B, N, C)."""
        states = self._run(tokens, mask, types, output_hidden_states=True).hidden_states
        return list(states[1:])  # the first are the embeddings

    def _run(self, tokens: Tensor, mask: Tensor, types: Tensor, **options: bool) -> Any:
        """Returns the output of transformers."""
        self.padding.begin(mask)
        inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types}
        return self.network(**inputs, **options)

    def _positions(self, position: str | list[str]) -> list[str]:
        positions = [position] if isinstance(position, str) else list(dict.fromkeys(position))
        absent = [p for p in positions if p not in self.layout.places]
        if absent or not positions:
            raise InputError(
                f"backbone.position: expected {', '.join(self.layout.places)}, or a list of "
                f"these, got {absent[0] if absent else position!r}"
            )
        return positions

    def _create(self, **sizes: float) -> nn.Module:
        """Builds the network of transformers with random weights."""
        return imported().BertModel(imported().BertConfig(**sizes))

    def _layers(self) -> list[nn.Module]:
        """Returns the layers; one that is applied several times appears once."""
        return list(self.network.encoder.layer)


class ALBERT(BERT):
    """ALBERT without classifier: one layer, applied ``depth`` times, and narrower embeddings.

    The applications share the aggregators as they share the other parameters. The positions have
    the names of BERT's; ContraNorm's code numbers them differently, see ``BERT``.

    Args:
        embedding: channels of the embeddings.
        others: as in ``BERT``; the output of the FFN has no dropout.
    """

    @dataclass(frozen=True)
    class Options(BERT.Options):
        name: str = "albert-base-v2"
        vocabulary: int = 30000
        dropout: float = 0.0
        embedding: int = 128

    layout: ClassVar[LayerPlaces] = blocks.ALBERT

    def _create(self, **sizes: float) -> nn.Module:
        config = imported().AlbertConfig(**sizes, embedding_size=self.options.embedding)
        return imported().AlbertModel(config)

    def _layers(self) -> list[nn.Module]:
        groups = self.network.encoder.albert_layer_groups
        return [layer for group in groups for layer in group.albert_layers]


class PreNormBERT(BERT):
    """BERT with a norm before each branch: x ← x + attention(LN(x)), x ← x + FFN(LN(x)).

    This is the Megatron-BERT of transformers: a last LN follows the last layer, whose output in
    ``layers`` is that of this LN, and the embeddings have none. Only aggregators of the site after
    are possible. Positions have BERT's names, but ``attention_norm`` is the output of the norm
    before the FFN, and there is no ``output``.

    Args:
        others: as in ``BERT``.
    """

    layout: ClassVar[LayerPlaces] = LayerPlaces(
        "attention.self",
        "attention.output.dense",
        {
            "input": blocks.Place("attention", True),
            "context": blocks.Place("attention.output.dense", True),
            "projection": blocks.Place("attention.output.dropout", False),
            "attention_norm": blocks.Place("ln", False),
            "ffn": blocks.Place("output.dropout", False),
            "attention_sum": blocks.Place("attention.output", False),
            "ffn_sum": blocks.Place("output", False),
        },
    )
    offered: ClassVar[Sequence[str]] = ("after",)

    def _create(self, **sizes: float) -> nn.Module:
        return imported().MegatronBertModel(imported().MegatronBertConfig(**sizes))


def imported() -> ModuleType:
    """Imports transformers, an optional dependency; raises InputError if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise InputError(f"backbone: needs transformers ({error}); {install('text')}") from error
    return transformers


OLD_NAMES = {"gamma": "weight", "beta": "bias"}  # of norms, in the oldest files
HEADS = ("cls.", "predictions.", "sop_classifier.", "classifier.", "qa_outputs.")
LAYER = re.compile(r"encoder\.layer\.(\d+)\.")


def load(network: nn.Module, name: str, weights: str, sha256: str | None, depth: int) -> None:
    """Loads weights into a network, in place.

    If the file has more layers than the network, the first ones are used. If it has fewer, the
    other layers keep their random weights, as in ContraNorm's runs over depth.

    Args:
        network: BertModel or AlbertModel of transformers.
        name: of the model on the hub.
        weights: ``hub``: from the hub's cache or downloaded, unless ``OVERSMOOTHING_OFFLINE=1``.
            ``none``: keep the random ones. Else: path of a ``.safetensors`` or torch file.
        sha256: SHA-256 of the file or its first 8 or more hex digits; None: no check.
        depth: number of layers of the network.

    Raises:
        InputError: the weights are not available, have another SHA-256, or are of another
            architecture.
    """
    published = partial(pretrained.published, name, "the hub's")
    path = pretrained.chosen(weights, sha256, "hub", published)
    if path is not None:
        state = _fitted(_renamed(pretrained.read(path)), network, name, path, depth)
        network.load_state_dict(state, strict=False)


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames tensors to the names of today's bare encoder and leaves heads out."""
    found = {}
    for key, value in state.items():
        if key.startswith(HEADS) or key.endswith("position_ids"):
            continue
        *path, last = key.removeprefix("bert.").removeprefix("albert.").split(".")
        found[".".join([*path, OLD_NAMES.get(last, last)])] = value
    return found


def _fitted(
    state: dict[str, Tensor], network: nn.Module, name: str, path: Path, depth: int
) -> dict[str, Tensor]:
    """Removes layers that the network does not have; checks that all other tensors fit."""
    own = network.state_dict()
    known = max([-1, *(_layer(key) for key in state)]) + 1
    state = {key: value for key, value in state.items() if _layer(key) < depth}
    optional = [key for key in own if known <= _layer(key)]
    if parts := pretrained.misfits(state, own, optional):
        raise InputError(
            f"{path}: weights of another architecture: {parts}; expected {name}; set "
            "backbone.dim, .heads, .ffn and .vocabulary to those of the weights"
        )
    return state


def _layer(key: str) -> int:
    """Returns the index of the layer that a tensor belongs to; −1 if it belongs to none."""
    found = LAYER.match(key)
    return int(found[1]) if found else -1


MIXING = ("query", "key", "value")


class Padding(Current):
    """The padding mask of the current batch, which all layers of a network share.

    ContraNorm's code for language has no mask. Padding takes part in the aggregation there, so the
    result for a sentence depends on the other sentences of the batch. With ``masked``, no
    aggregator sees padding.

    Args:
        masked: whether to hide padding from aggregators.
    """

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def begin(self, mask: Tensor) -> None:
        """Sets the mask of a new batch, (B, N): true for tokens, false for padding after them."""
        self.enter(sentences(mask) if self.masked else None, torch.is_grad_enabled())


def equip(
    layer: nn.Module,
    layout: LayerPlaces,
    sites: Sites,
    positions: Sequence[str],
    context: Context,
    padding: Padding,
) -> None:
    """Puts new instances of the aggregators into a layer; without aggregators it does not change.

    Args:
        layer: of transformers.
        layout: of the layer.
        sites: the aggregators.
        positions: places of the aggregators of the site after; every place has its own instances.
        context: of every aggregator.
        padding: of the network.
    """
    from oversmoothing.adapters.hf_functions import InsideFunction, InsteadOfFunction

    attention = layer.get_submodule(layout.attention)
    dim = attention.query.in_features
    if sites.has("inside"):
        heads = attention.num_attention_heads
        inside = sites.build("inside", dim // heads, heads=heads, channels=dim)
        InsideFunction(inside, context, padding).attach(attention)
    if sites.has("instead"):
        InsteadOfFunction(sites.build("instead", dim), context, padding).attach(attention)
        for name in (*(f"{layout.attention}.{part}" for part in MIXING), layout.projection):
            layer.set_submodule(name, nn.Identity())
    if sites.has("after"):
        places = [layout.places[position] for position in positions]
        for place in sorted(places, key=lambda place: -place.module.count(".")):
            kind = BeforeModule if place.before else AfterModule
            site = kind(sites.build("after", dim), context, padding)
            site.attach(layer.get_submodule(place.module))
