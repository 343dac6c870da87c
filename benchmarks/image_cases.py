"""What is measured on images and tokens, beside plain forms."""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import timm
import torch
import torch.nn.functional as F
from bench import Comparison, Item, Run, row
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.wsss.network import Network
from oversmoothing.lab.tasks.wsss.settings import Method
from oversmoothing.lab.tasks.wsss.task import Objective
from oversmoothing.lab.training.loop import TrainingLoop, compiled
from oversmoothing.lab.training.recipes import AdamWPoly

Form = Callable[[Tensor], Tensor]


def smooth(*shape: int) -> Tensor:
    """Draws smooth noise in [0, 1], (B, K, H, W)."""
    *front, H, W = shape
    return F.interpolate(torch.rand(*front, H // 8, W // 8), (H, W), mode="bilinear")


# ---------------------------------------------------------------- attention
def centering(
    run: Run,
    batch: int = 2,
    heads: int = 6,
    tokens: tuple[int, ...] = (196, 785, 3136),
    channels: int = 64,
    dtype: str = "float32",
) -> Iterator[Comparison]:
    """Centered attention, beside fused attention without the mean and beside the N × N matrix.

    Forward and backward. q, k and v are views of one (B, N, 3, H, C) tensor and the heads are
    merged at the end, as in a ViT. ``ours`` is what a backbone computes: fused attention, then the
    aggregator. ``values shifted`` is fused attention of V + γ 1v̄ᵀ, which is equal as rows sum to 1.
    The N × N form is softmax(QKᵀ/√C) + γ 11ᵀ/N, times V, for up to 1,024 tokens.
    """
    make = partial(_attention_step, run.place, (batch, heads, channels), getattr(torch, dtype))
    tolerance = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 5e-3}[dtype]

    def agree(steps: dict[str, Callable[[], Tensor]]) -> tuple[float, float]:
        own, _, *others = (step() for step in steps.values())
        return max((own - other).abs().max().item() for other in others), tolerance

    for N in tokens:
        peers = {"fused attention": _fused, "values shifted": _shifted}
        shape = f"{batch} × {heads} × {N} × {channels}"
        if N <= 1024:
            peers["with the N × N matrix"] = _with_matrix
        yield Comparison(
            {"centered attention": partial(make, _centered, N)},
            {peer: partial(make, form, N) for peer, form in peers.items()},
            unit=f"ms, {shape}",
            peak=f"MB, {shape}",
            overhead=("fused attention",),
            agree=agree,
        )


CENTERED = Centered(-1.0)


def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _centered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return CENTERED(_fused(q, k, v), v, Context())


def _shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _fused(q, k, CENTERED(v, v, Context()))


def _with_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    N, C = q.shape[-2:]
    return ((q @ k.mT / math.sqrt(C)).softmax(dim=-1) - 1 / N) @ v


def _attention_step(
    place: torch.device, size: tuple[int, int, int], dtype: torch.dtype, form: Callable, N: int
) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    B, H, C = size
    qkv = torch.randn(B, N, 3, H, C, device=place, dtype=dtype).requires_grad_()
    upstream = torch.randn(B, N, H * C, device=place, dtype=dtype)

    def step() -> Tensor:
        qkv.grad = None
        out = form(*qkv.permute(2, 0, 3, 1, 4)).transpose(1, 2).flatten(2)
        out.backward(upstream)
        return out.detach()

    return step


def em(
    run: Run, batch: int = 1, sides: tuple[int, ...] = (32, 64, 128), channels: int = 512
) -> Iterator[Item]:
    """EM, HEM and external attention, and self-attention, over the number of tokens.

    Tokens are the pixels of a side × side map: 33 and 65 are a crop of 513² at output strides 16
    and 8. Forward and backward to the tokens. ``em`` passes no gradient, so it only goes forward;
    the units' 1×1 convolutions are left out. ``attention`` is one fused head with query, key and
    value the tokens; ``explicit`` forms its N × N matrix, for up to 4,096 tokens.
    """
    if min(sides) < 8:
        raise InputError(f"--sides: expected 8 or more, for 64 bases, got {min(sides)}")
    hem = {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False, "gradients": True}
    forms: dict[str, Callable[[], Form]] = {
        "attention": lambda: lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3)[:, 0],
        "explicit": lambda: lambda x: (x @ x.mT / math.sqrt(channels)).softmax(dim=-1) @ x,
        "em": lambda: EM(channels),
        "hem": lambda: EM(channels, **hem),
        "external": lambda: External(channels),
        "external_multihead": lambda: ExternalMultiHead(channels),
    }

    make = partial(_unit_step, run.place, batch, channels)
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for side in sides:
        names = [name for name in forms if side**2 <= 4096 or name not in ("attention", "explicit")]
        rows = yield Comparison(
            {f"{name}, {side**2:,} tokens": partial(make, forms[name], side**2) for name in names},
            peak="MB",
        )
        for each in rows or ():
            key = each["work"].partition(",")[0], each["measure"]
            found.setdefault(key, []).append((side**2, float(each["ours"])))
    for (name, measure), values in found.items():
        if len(values) > 1:
            slope = np.polyfit(*np.log(values).T, 1)[0]
            span = f"{name}, {values[0][0]:,} to {values[-1][0]:,} tokens"
            yield [row(span, f"exponent of {measure}", [float(slope)])]


APPLIED = {  # method -> arguments of osm.apply
    "centered": {"gamma": -0.5},
    "attn_scale": {},
    "gated_attention": {},
    "re_attention": {},
    "shaped_attention": {},
    "value_residual": {},
    "neutreno": {},
    "feat_scale": {},
    "pairnorm": {},
    "layernorm": {},
    "contranorm": {"scale": 0.1},
    "contranorm_d": {"scale": 0.1},
    "rezero": {},
}


def applied(
    run: Run, model: str = "deit_tiny_patch16_224", batch: int = 4, side: int = 224
) -> Iterator[Comparison]:
    """A training step of a timm model with each method of `osm.apply`, beside that of no method."""

    def make(method: str) -> Callable[[], None]:
        torch.manual_seed(0)
        net = timm.create_model(model, img_size=side)
        if method != "none":
            osm.apply(net, method, **APPLIED[method])
        net.to(run.place).train()
        images = torch.randn(batch, 3, side, side, device=run.place)
        labels = torch.arange(batch, device=run.place)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()

        return step

    yield Comparison(
        {f"{model}, {batch} × {side}²: {method}": partial(make, method) for method in APPLIED},
        {"none": partial(make, "none")},
        unit="ms per training step",
        overhead=("none",),
    )


def _unit_step(
    place: torch.device, batch: int, channels: int, make: Callable[[], Form], N: int
) -> Callable[[], None]:
    torch.manual_seed(0)
    x = torch.randn(batch, N, channels, device=place).requires_grad_()
    upstream, form = torch.randn(x.shape, device=place), make()
    if isinstance(form, nn.Module):
        form = partial(form.to(place), context=Context())

    def step() -> None:
        x.grad = None
        out = form(x)
        if out.requires_grad:
            out.backward(upstream)

    return step


# ---------------------------------------------------------------- segmentation
WSSS = {  # form: aggregator, options of the trainer
    "plain": (NoAggregator, {}),
    "centered": (partial(Centered, -1.0), {}),
    "plain, compiled": (NoAggregator, {"compile": True}),
    "plain, bf16": (NoAggregator, {"precision": "bf16"}),
    "centered, bf16": (partial(Centered, -1.0), {"precision": "bf16"}),
    "plain, bf16, compiled": (NoAggregator, {"precision": "bf16", "compile": True}),
    "centered, bf16, compiled": (partial(Centered, -1.0), {"precision": "bf16", "compile": True}),
    "centered, bf16, no CUDA graph": (
        partial(Centered, -1.0),
        {"precision": "bf16", "cuda_graph": False},
    ),
}


def wsss_step(
    run: Run,
    name: str = "deit_tiny_patch16_224",
    forms: tuple[str, ...] = tuple(WSSS),
    crop: int = 224,
    batch: int = 2,
    energy: bool = True,
) -> Iterator[Comparison]:
    """A training step of weakly supervised segmentation.

    A step is CAMs, PAR, pseudo labels, losses, backward and AdamW, with random weights and in
    float32 (TF32 products on a GPU), and with trainer.precision=bf16 and trainer.compile=true.
    --no-energy leaves L_reg out. Records beside ToCo are of ToCo's
    code without its contrastive losses and with our L_reg, at the commit that they name.
    """
    torch._dynamo.config.recompile_limit = 64  # every form compiles the same functions
    torch.set_float32_matmul_precision("high" if run.place.type == "cuda" else "highest")
    images = _wsss_batch(run.place, batch, crop)
    end = f"{name}, {batch} × {crop}²{'' if energy else ', no L_reg'}"
    ours = {form: partial(WSSSStep, form, name, images, energy) for form in WSSS if form in forms}
    yield Comparison({f"WSSS step, {form}, {end}": make for form, make in ours.items()}, peak="MB")


def _wsss_batch(place: torch.device, B: int, S: int) -> dict[str, Tensor]:
    """Smooth noise with one or two classes per image, and a border outside the image."""
    torch.manual_seed(0)
    label = torch.zeros(B, 20)
    label[torch.arange(B), torch.arange(B) % 20] = 1
    label[::2, 14] = 1
    return {
        "image": smooth(B, 3, S, S).to(place),
        "label": label.to(place),
        "box": torch.tensor([[0, S, S // 8, S]] * B, device=place),
        "name": [str(i) for i in range(B)],
        "num_present": [2 if i % 2 == 0 and i != 14 else 1 for i in range(B)],
    }


class WSSSStep:
    """A step of the training loop."""

    def __init__(self, form: str, name: str, batch: dict[str, Tensor], energy: bool) -> None:
        torch.manual_seed(0)
        aggregator, options = WSSS[form]
        place, B = batch["image"].device, len(batch["image"])
        vit = ViT([aggregator, NoAggregator], name=name, weights="none")
        self.network, self.batch = Network(vit, num_classes=20).to(place), batch
        method = Method(start=0) if energy else Method(start=0, reg_weight=0.0)
        trainer = AdamWPoly(batch_size=B, **options)
        recorder = Recorder(Path(), [0], checkpoint_seconds=math.inf)
        own = Objective(method, self.network)
        self.training = TrainingLoop(self.network, own, None, trainer, recorder, place)
        self.compiled = contextlib.ExitStack()  # open as long as the object exists
        self.compiled.enter_context(compiled(self.network, trainer.compile))

    def __call__(self) -> dict[str, Tensor]:
        return self.training._step(self.network, self.batch)
