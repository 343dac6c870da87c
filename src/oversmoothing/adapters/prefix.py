"""Tokens around the patches of an image, such as CLS."""

from torch import nn

PREFIX_TOKENS = (  # parameters of transformers' vision models, (1, k, C) or (C,)
    "cls_token",
    "class_embedding",
    "cls_register_token",
    "distillation_token",
    "register_tokens",
)
TRAILING_TOKENS = ("detection_tokens",)  # YOLOS
OF_BRANCHES = ("cls_token_0", "cls_token1")  # CrossViT, CoaT: every branch has a class token
CLASS_BLOCKS = ("blocks_token_only", "cls_attn_blocks")  # CaiT, XCiT: the class token starts there
PATCHES = ("patch_embed", "pixel_embed", "temporal_")  # names of modules without class tokens
ELSEWHERE = (*PREFIX_TOKENS, "class_token")  # class tokens in models of other libraries


def prefix_of(model: nn.Module, name: str) -> int:
    """Returns the number of leading tokens of a layer that are not patches; 0 if it is unknown.

    It is read from the innermost model of timm, transformers or torchvision around the layer. It is
    0 before a model adds its class token, and in text models, whose CLS is a word of the
    vocabulary.

    Args:
        model: the model with the layer.
        name: of the layer.
    """
    return _known_prefix(model, name) or 0


def suffix_of(model: nn.Module, name: str) -> int:
    """Returns the number of trailing tokens of a layer that are not patches, as those of YOLOS."""
    if _of_patches(name):
        return 0
    around = reversed(parents_of(model, name).values())
    found = (_embeddings(parent) for parent in around)
    return next((_count(inner, TRAILING_TOKENS) for inner in found if inner is not None), 0)


def class_token_of(model: nn.Module, name: str) -> str | None:
    """Returns a parameter that may be a leading token of a layer whose prefix is unknown.

    It is one of the modules around the layer, or of what embeds patches for them.
    """
    if _known_prefix(model, name) is not None:
        return None
    for parent in reversed(parents_of(model, name).values()):
        embeds = [m for n, m in parent.named_children() if n.startswith(PATCHES)]
        for module in (parent, *(m for inner in embeds for m in inner.modules())):
            for token in ELSEWHERE:
                if isinstance(getattr(module, token, None), nn.Parameter):
                    return f"{token} of {type(module).__name__}"
    return None


def _known_prefix(model: nn.Module, name: str) -> int | None:
    """Returns the number of leading tokens; None outside of models of known libraries."""
    if _of_patches(name):
        return 0
    for path, parent in reversed(parents_of(model, name).items()):
        count = getattr(parent, "num_prefix_tokens", None)
        if count is None and hasattr(parent, "blocks") and hasattr(parent, "cls_token"):
            count = 1  # CaiT, XCiT and ConViT before timm 1.0.31
        if isinstance(count, int):
            return 0 if _before_class(parent, name.removeprefix(path).lstrip(".")) else count
        if any(hasattr(parent, token) for token in OF_BRANCHES):
            return 1
        if hasattr(parent, "decoder_pos_embed"):  # MAE's decoder gets the encoder's class token
            return 1
        if hasattr(parent, "class_token") and type(parent).__module__.startswith("torchvision."):
            return 1
        if (embeddings := _embeddings(parent)) is not None:
            return _count(embeddings, PREFIX_TOKENS)
    return None


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


def _of_patches(name: str) -> bool:
    """Whether a layer gets patches only, such as one that embeds them."""
    of_naflex = f".{name}".endswith(".embeds.proj")
    return of_naflex or any(part.startswith(PATCHES) for part in name.split("."))


def _embeddings(model: nn.Module) -> nn.Module | None:
    embeddings = getattr(model, "embeddings", None)
    known = hasattr(model, "config") and isinstance(embeddings, nn.Module)
    return embeddings if known else None


def _count(embeddings: nn.Module, names: tuple[str, ...]) -> int:
    tokens = dict(embeddings.named_parameters(recurse=False))
    found = (tokens[name] for name in names if name in tokens)
    return sum(1 if token.dim() == 1 else token.shape[-2] for token in found)
