"""Tokens before the patches of an image, such as CLS."""

from torch import nn

PREFIX_TOKENS = (  # parameters of transformers' vision models, (1, k, C) or (C,)
    "cls_token",
    "class_embedding",
    "distillation_token",
    "register_tokens",
)


def prefix_of(model: nn.Module, name: str) -> int:
    """Returns how many leading tokens of a layer are no patches, by timm or transformers.

    The innermost model around the layer decides. It is 0 where nothing tells, also in models of
    text: their CLS is a word of the vocabulary.

    Args:
        model: that the layer is in.
        name: of the layer.
    """
    parents = {"": model}
    for part in name.split(".")[:-1]:
        path = f"{next(reversed(parents))}.{part}".lstrip(".")
        parents[path] = model.get_submodule(path)
    for parent in reversed(parents.values()):
        count = getattr(parent, "num_prefix_tokens", None)
        if isinstance(count, int):
            return count
        embeddings = getattr(parent, "embeddings", None)
        if hasattr(parent, "config") and isinstance(embeddings, nn.Module):
            return _embedded(embeddings)
    return 0


def _embedded(embeddings: nn.Module) -> int:
    tokens = dict(embeddings.named_parameters(recurse=False))
    found = (tokens[name] for name in PREFIX_TOKENS if name in tokens)
    return sum(1 if token.dim() == 1 else token.shape[-2] for token in found)
