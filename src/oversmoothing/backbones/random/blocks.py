"""How mixing S, residual sum and row norm N make a layer (Centered Self-Attention, Sec. 4.1).

- Pre-LN ``X ← S(N(X)) + X``, output ``N(X)``. The paper's ``S(N(X; W) + X)`` is a misprint.
- Post-LN ``X ← N(S(X) + X)``, output ``X``.
- ResiDual ``R ← R + S(X), X ← N(S(X) + X)``, output ``N(R) + X``, R₁ = X₁.
- plain ``X ← S(X)``, output ``X``: of Propositions 1 and 2.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Mixing = Callable[[Tensor], Tensor]


def normalise_rows(x: Tensor) -> Tensor:
    """N of the paper: every row divided by its 2-norm, zero rows left at zero.

    Shapes: x (..., n, d) -> (..., n, d).
    """
    norm = x.norm(dim=-1, keepdim=True)
    return x / norm.masked_fill(norm == 0, 1.0)


class Block(NamedTuple):
    """How S, the residual sum and N make a layer; a state is X, or X and R, which start as X₁."""

    parts: int
    layer: Callable[..., tuple[Tensor, ...]]
    output: Callable[..., Tensor]


def _pre_ln(mixing: Mixing, x: Tensor) -> tuple[Tensor]:
    return (mixing(normalise_rows(x)) + x,)


def _post_ln(mixing: Mixing, x: Tensor) -> tuple[Tensor]:
    return (normalise_rows(mixing(x) + x),)


def _resi_dual(mixing: Mixing, x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    s = mixing(x)
    return normalise_rows(s + x), r + s


def _plain(mixing: Mixing, x: Tensor) -> tuple[Tensor]:
    return (mixing(x),)


BLOCKS = {
    "pre_ln": Block(1, _pre_ln, normalise_rows),
    "post_ln": Block(1, _post_ln, lambda x: x),
    "resi_dual": Block(2, _resi_dual, lambda x, r: normalise_rows(r) + x),
    "plain": Block(1, _plain, lambda x: x),
}
