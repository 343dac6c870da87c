"""The pairs of nodes that are not compared with each other, sorted once per graph."""

import math
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from oversmoothing.checks import check_edges

CPU_TILE = 384  # for one thread: two tiles fit into the cache of its core
CPU_TILE_BF16 = 576
TILE = 4096  # on other devices
Tiles = tuple[Tensor, Tensor, int]


class Neighbours:
    """The pairs of neighbours: a sparse boolean N×N matrix.

    Args:
        edges: row and column of every entry, (2, E), in any order; repeated ones count once.
        num_nodes: N.

    Raises:
        InputError: the edges are not pairs of these nodes.
    """

    def __init__(self, edges: Tensor, num_nodes: int) -> None:
        check_edges(edges, num_nodes)
        self.num_nodes = num_nodes
        keys = (edges[0].long() * num_nodes + edges[1]).unique()  # sorted by row, then column
        self.rows, self.columns = keys // num_nodes, keys % num_nodes

    @cached_property
    def symmetric(self) -> bool:
        """Whether every entry has its mirror image."""
        N = self.num_nodes
        mirrored = (self.columns * N + self.rows).sort().values
        return torch.equal(mirrored, self.rows * N + self.columns)

    @cached_property
    def tiles(self) -> Tiles:
        """The entries by tile."""
        return self._in_tiles(_tile(self.num_nodes, self.rows.device, CPU_TILE))

    @cached_property
    def tiles_bf16(self) -> Tiles:
        """The entries by tile for tiles in bfloat16, which may be larger."""
        return self._in_tiles(_tile(self.num_nodes, self.rows.device, CPU_TILE_BF16))

    @cached_property
    def bits(self) -> Tensor:
        """The matrix with one bit for each pair, (N, ⌈N/32⌉) int32; the lowest bit comes first."""
        words = -(-self.num_nodes // 32)
        flat = self.rows.new_zeros(self.num_nodes * words)
        flat.index_add_(0, self.rows * words + self.columns // 32, 1 << self.columns % 32)
        return flat.view(-1, words).int()

    def _in_tiles(self, size: int) -> Tiles:
        """Sorts the entries by the square tiles on and above the diagonal, numbered by rows.

        Args:
            size: side of a tile; the tiles of the last row and column may be smaller.

        Returns:
            positions: flat index of each entry inside its tile, ordered by tile.
            bounds: offsets of the tiles into ``positions``, on the CPU, (1, tiles + 1). If the
                matrix A is not symmetric, a second row has the offsets for Aᵀ, whose positions
                follow those of A.
            size: as given.
        """
        lists = [self._by_tile(size, self.rows, self.columns)]
        if not self.symmetric:
            lists.append(self._by_tile(size, self.columns, self.rows))
        positions, counts = zip(*lists)
        ends, tiles = F.pad(torch.cat(counts).cumsum(0), (1, 0)).cpu(), len(counts[0])
        return torch.cat(positions), ends.unfold(0, tiles + 1, tiles).contiguous(), size

    def _by_tile(self, size: int, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the positions of entries inside their tiles, and the count in each tile."""
        n = -(-self.num_nodes // size)
        upper = rows // size <= columns // size
        rows, columns = rows[upper], columns[upper]
        i, j = rows // size, columns // size
        number = i * n - i * (i - 1) // 2 + j - i
        width = (self.num_nodes - j * size).clamp(max=size)
        positions = rows % size * width + columns % size
        return positions[number.argsort(stable=True)], number.bincount(minlength=n * (n + 1) // 2)

    def strips(self, size: int, chosen: Tensor | None) -> tuple[Tensor, ...]:
        """Returns the positions of the entries inside every strip of ``size`` rows.

        Args:
            size: rows of a strip.
            chosen: columns of a strip, in their order; None: all.
        """
        rows, columns, K = self.rows, self.columns, self.num_nodes
        if chosen is not None:
            K = len(chosen)
            place = columns.new_full((self.num_nodes,), -1)
            place[chosen] = torch.arange(K, device=chosen.device)
            kept = place[columns] >= 0
            rows, columns = rows[kept], place[columns[kept]]
        counts = (rows // size).bincount(minlength=-(-self.num_nodes // size))
        return (rows % size * K + columns).split(counts.tolist())


def _tile(num_nodes: int, device: torch.device, of_thread: int) -> int:
    """Returns the side of a tile, a multiple of 16 that divides N into about equal parts."""
    largest = of_thread * math.isqrt(torch.get_num_threads()) if device.type == "cpu" else TILE
    return 16 * math.ceil(num_nodes / math.ceil(num_nodes / largest) / 16)


_sorted: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def neighbours_of(edges: Tensor, num_nodes: int) -> Neighbours:
    """Returns the ``Neighbours`` of a tensor of edges; they are kept as long as the tensor lives.

    After an in-place change of the tensor they are built anew.
    """
    version = 0 if edges.is_inference() else edges._version  # torch counts changes in place
    known = {key: found for key, found in _sorted.get(edges, {}).items() if key[1] == version}
    if (num_nodes, version) not in known:
        known[num_nodes, version] = Neighbours(edges, num_nodes)
        _sorted[edges] = known
    return known[num_nodes, version]
