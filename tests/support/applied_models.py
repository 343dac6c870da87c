"""Small models of every library that ``apply`` knows, and aggregators with parameters."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.aggregators.base import PLAIN, After, Context, Inside

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 50}
WORDS = torch.randint(1, 50, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
PADDED = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])  # on either side
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 0, 5], [1, 0, 2, 1, 4, 3, 5, 0]])


class Case(NamedTuple):
    """A model, its inputs, and the first tensor of its output."""

    build: Callable[[], nn.Module]
    inputs: dict[str, Tensor]
    where: tuple[str | None, ...]

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build().eval()

    def run(self, model: nn.Module) -> Tensor:
        output = model(**self.inputs)
        return output if isinstance(output, Tensor) else output[0]


def vit(**options: object) -> nn.Module:
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", **sizes, num_classes=3, **options)


def rope() -> nn.Module:
    sizes = {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2}
    return timm.create_model("vit_base_patch16_rope_224", **sizes, num_classes=3)


def swin() -> nn.Module:
    sizes = {"img_size": 32, "window_size": 2, "embed_dim": 16}
    sizes |= {"depths": (1, 2), "num_heads": (2, 4)}
    return timm.create_model("swin_tiny_patch4_window7_224", **sizes, num_classes=3)


def windows(kind: str = "Swin") -> nn.Module:
    """A Swin or SwinV2 of transformers; the first stage has two blocks, the second one."""
    sizes = {"image_size": 32, "window_size": 2, "embed_dim": 16, "depths": [2, 1]}
    config = getattr(hf, f"{kind}Config")(**sizes, patch_size=4, num_heads=[2, 4])
    return getattr(hf, f"{kind}Model")(config)


def bert() -> nn.Module:
    return hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=32))


def gpt2() -> nn.Module:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(n_embd=16, n_head=2, n_layer=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    )


def llama() -> nn.Module:
    config = hf.LlamaConfig(**SMALL, intermediate_size=32, num_key_value_heads=1)
    return hf.LlamaForCausalLM(config)


def encoder(**options: object) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, **{"batch_first": True, **options})
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def made(build, *aggregators, implementation: str = "sdpa", **options) -> nn.Module:
    """A model of transformers in float64, with aggregators."""
    torch.manual_seed(0)
    model = build().double().eval()
    model.set_attn_implementation(implementation)
    return osm.apply(model, list(aggregators), **options) if aggregators else model


centered = partial(osm.Centered, gamma=-0.7)
IMAGE = {"x": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
TEXT = {"input_ids": WORDS, "attention_mask": MASK}
GRAPH = {"x": torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), "edge_index": EDGES}
CASES = {
    "vit": Case(vit, IMAGE, ("branch", "norm2", "norms")),
    "rope": Case(rope, IMAGE, ()),
    "swin": Case(swin, IMAGE, ()),
    "windows": Case(windows, {"pixel_values": IMAGE["x"]}, ()),
    "bert": Case(bert, TEXT, ("attention_sum", "context", "norms")),
    "gpt2": Case(gpt2, TEXT, ()),
    "llama": Case(llama, TEXT, ()),
    "gcn": Case(lambda: pyg.GCN(5, 8, 3), GRAPH, (None,)),
    "gat": Case(lambda: pyg.GAT(5, 8, 3, heads=2), GRAPH, (None,)),
    "gin": Case(lambda: pyg.GIN(5, 8, 3), GRAPH, (None,)),
}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
ONE_EACH = pytest.mark.parametrize("case", [CASES[n] for n in ("vit", "bert", "gcn")])


class Scale(Inside):
    """Has a parameter for each channel."""

    can_be_causal = True

    def __init__(self, dim: int, start: float = 2.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), start))

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        return self.scale * mixed


class Push(After):
    """Has a parameter; moves every token away from the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return x + self.strength * (x - x.mean(dim=-2, keepdim=True))


def everything(model: nn.Module) -> dict[str, object]:
    """All that ``apply`` could change."""
    seen: dict[str, object] = {}
    for name, module in model.named_modules():
        seen[name] = (id(module), type(module), list(module.__dict__["_forward_hooks"]),
                      list(module._forward_pre_hooks), sorted(vars(module)))  # fmt: skip
        if hasattr(module, "config"):
            seen[f"{name}.config"] = (id(module.config), module.config._attn_implementation)
    return seen
