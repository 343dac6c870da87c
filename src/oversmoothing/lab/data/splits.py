"""Random splits of the nodes of a graph into training, validation and test nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oversmoothing.errors import InputError

Masks = tuple[Tensor, Tensor, Tensor]
NUM_SPLITS = 10


def drawn(name: str, y: Tensor, sizes: Sequence[float], seed: int) -> Masks:
    """Draws ten splits of the nodes that have a label.

    Args:
        name: of the data set, for messages.
        y: labels (N,); below 0: without label.
        sizes: of the training, validation and test sets, as fractions of every class or as numbers
            of nodes. Fractions: such as 0.6, 0.2, 0.2 (https://arxiv.org/abs/2002.05287 has 0.48,
            0.32, 0.2). Numbers: training nodes of every class, then validation and test nodes among
            the others, such as 20, 500, 1000 (https://arxiv.org/abs/1603.08861).
        seed: of all ten splits.

    Returns:
        Three boolean (10, N), disjoint in every split.

    Raises:
        InputError: sizes are neither fractions nor numbers, or there are too few nodes.
    """
    fractions = len(sizes) == 3 and all(0 < size < 1 for size in sizes) and sum(sizes) < 1 + 1e-6
    counts = len(sizes) == 3 and all(size >= 1 and size == int(size) for size in sizes)
    if not fractions and not counts:
        raise InputError(
            "data.split_sizes: expected three fractions that sum to 1 at most, such as "
            f"[0.6,0.2,0.2], or numbers of nodes, such as [20,500,1000], got {list(sizes)}"
        )
    generator = torch.Generator().manual_seed(seed)
    if fractions:
        draws = [_fractions(y, sizes, generator) for _ in range(NUM_SPLITS)]
    else:
        numbers = [int(size) for size in sizes]
        _check_counts(name, y, numbers)
        draws = [_counts(y, numbers, generator) for _ in range(NUM_SPLITS)]
    part = torch.stack(draws)
    return part == 0, part == 1, part == 2


def _fractions(y: Tensor, sizes: Sequence[float], generator: torch.Generator) -> Tensor:
    """Assigns every node to training (0), validation (1), test (2) or none of them (3), (N,)."""
    place, size = _places(y, generator)
    ends = torch.tensor(sizes, dtype=torch.float64).cumsum(0)
    ends = (ends[:, None] * size + 1e-6).round()  # the first nodes of a class are for training
    return torch.where(y < 0, 3, (place >= ends).sum(dim=0))


def _counts(y: Tensor, sizes: list[int], generator: torch.Generator) -> Tensor:
    place, _ = _places(y, generator)
    train = (place < sizes[0]) & (y >= 0)
    order = torch.randperm(y.shape[0], generator=generator)
    others = order[(~train & (y >= 0))[order]]
    part = torch.where(train, 0, torch.full_like(y, 3))
    part[others[: sizes[1]]] = 1
    part[others[sizes[1] : sizes[1] + sizes[2]]] = 2
    return part


def _places(y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns every node's index in a random order of its class, and the class size, (N,)."""
    order = torch.randperm(y.shape[0], generator=generator)
    classes, by_class = y[order].sort(stable=True)
    _, index, sizes = classes.unique_consecutive(return_inverse=True, return_counts=True)
    place, size = torch.empty_like(y), torch.empty_like(y)
    place[order[by_class]] = torch.arange(y.shape[0]) - (sizes.cumsum(0) - sizes)[index]
    size[order[by_class]] = sizes[index]
    return place, size


def _check_counts(name: str, y: Tensor, sizes: list[int]) -> None:
    per_class = y[y >= 0].bincount()
    needed = sizes[0] * per_class.count_nonzero().item() + sizes[1] + sizes[2]
    if (small := per_class[per_class > 0].min().item()) < sizes[0] or needed > (y >= 0).sum():
        raise InputError(
            f"data.split_sizes: {sizes} needs {needed} nodes with labels and {sizes[0]} of every "
            f"class; {name} has {int((y >= 0).sum())}, and its smallest class {small}; choose "
            "fewer, or fractions such as [0.6,0.2,0.2]"
        )


def chosen(name: str, masks: Masks, split: int | str) -> Masks:
    """Selects one split, or all of them.

    Args:
        name: of the data set, for messages.
        masks: boolean (splits, N).
        split: its number, or ``each``.

    Returns:
        Three masks (N,), or (splits, N).

    Raises:
        InputError: no such split.
    """
    number = len(masks[0])
    if split == "each":
        return masks
    if split not in range(number):
        expected = f"0 to {number - 1} or each" if number > 1 else "0"
        raise InputError(
            f"data.split: {name} has {number} splits; expected {expected}, got {split}"
        )
    return tuple(mask[split] for mask in masks)
