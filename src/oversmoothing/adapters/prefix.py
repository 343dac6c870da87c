"""Tokens before the patches of an image, such as CLS."""

from torch import nn

PREFIX_TOKENS = (  # parameters of transformers' vision models, (1, k, C) or (C,)
    "cls_token",
    "class_embedding",
    "cls_register_token",
    "distillation_token",
    "register_tokens",
)
OF_BRANCHES = ("cls_token_0", "cls_token1")  # CrossViT, CoaT: every branch has a class token
CLASS_BLOCKS = ("blocks_token_only", "cls_attn_blocks")  # CaiT, XCiT: the class token starts there


def prefix_of(model: nn.Module, name: str) -> int:
    """Returns the number of leading tokens of a layer that are not patches.

    It is read from the innermost model of timm or transformers around the layer. It is 0 if it is
    unknown, and in text models, whose CLS is a word of the vocabulary.

    Args:
        model: the model with the layer.
        name: of the layer.
    """
    for path, parent in reversed(parents_of(model, name).items()):
        count = getattr(parent, "num_prefix_tokens", None)
        if count is None and hasattr(parent, "blocks") and hasattr(parent, "cls_token"):
            count = 1  # CaiT, XCiT and ConViT before timm 1.0.31
        if isinstance(count, int):
            return 0 if _before_class(parent, name.removeprefix(path).lstrip(".")) else count
        if any(hasattr(parent, token) for token in OF_BRANCHES):
            return 1
        embeddings = getattr(parent, "embeddings", None)
        if hasattr(parent, "config") and isinstance(embeddings, nn.Module):
            return _embedded(embeddings)
    return 0


def parents_of(model: nn.Module, name: str) -> dict[str, nn.Module]:
    """Returns the modules around a module, by name, from the outermost to the innermost."""
    parents = {"": model}
    for part in name.split(".")[:-1]:
        path = f"{next(reversed(parents))}.{part}".lstrip(".")
        parents[path] = model.get_submodule(path)
    return parents


def _before_class(model: nn.Module, name: str) -> bool:
    """Whether a timm model adds its class token after this layer."""
    parts, local = name.split("."), getattr(model, "local_up_to_layer", None)
    if isinstance(local, int) and parts[0] == "blocks" and parts[1:]:  # ConViT
        return int(parts[1]) < local
    late = [place for place in CLASS_BLOCKS if hasattr(model, place)]
    return bool(late) and parts[0] not in late


def _embedded(embeddings: nn.Module) -> int:
    tokens = dict(embeddings.named_parameters(recurse=False))
    found = (tokens[name] for name in PREFIX_TOKENS if name in tokens)
    return sum(1 if token.dim() == 1 else token.shape[-2] for token in found)
