"""A sparse matrix on tiles: its buckets, where they are, and how they travel between tiles."""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops import cast, counted_for_loop
from tremula.poplibs.popsparse.dynamic.meta_info import n_overflow_words
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse matrix on tiles: words of its pattern, its values, and the plan both follow."""

    meta_info: Tensor  # UNSIGNED_SHORT
    nz_values: Tensor
    plan: DynamicPlan


@dataclass(frozen=True, slots=True)
class TileCoordinates:
    """Coordinates of every tile of a plan, in the order of buckets."""

    x: Ints
    y: Ints
    z: Ints
    tile: Ints

    @classmethod
    def of(cls, plan: DynamicPlan) -> "TileCoordinates":
        x, y, z = np.unravel_index(np.arange(plan.n_tiles), (plan.x, plan.y, plan.z))
        return cls(x, y, z, (y * plan.z + z) * plan.x + x)


@dataclass(frozen=True)
class Buckets:
    """All buckets of a matrix, as [x, y, z, size] of words and of values."""

    words: Tensor
    values: Tensor

    @classmethod
    def of(cls, weights: SparseTensor) -> "Buckets":
        plan, n_head = weights.plan, n_overflow_words(weights.plan)
        shape = plan.x, plan.y, plan.z
        words = weights.meta_info.slice(n_head, len(weights.meta_info), 0)
        return cls(
            words.reshape((*shape, plan.n_meta)), weights.nz_values.reshape((*shape, plan.n_values))
        )


def _moved(tensor: Tensor, dim: int, step: int) -> Tensor:
    """A view of a ring: entry i shows what was at i - step."""
    n = tensor.shape[dim]
    cut = n - step % n
    if cut == n:
        return tensor
    return concat([tensor.slice(cut, n, dim), tensor.slice(0, cut, dim)], dim)


def on_tiles(graph: Graph, type: Type, plan: DynamicPlan, size: int, name: str) -> Tensor:
    """A new [x, y, z, size], each entry on its tile."""
    result = graph.add_variable(type, [plan.x, plan.y, plan.z, size], name)
    begin = np.arange(plan.n_tiles) * size
    if size:
        mapping = TileMapping(
            begin, begin + size, TileCoordinates.of(plan).tile, graph.target.n_tiles
        )
        graph.set_tile_mapping(result, mapping)
    return result


def buffer_like(graph: Graph, like: Tensor, plan: DynamicPlan, name: str) -> Tensor:
    """A new buffer on the tiles of a plan, like another of shape [x, y, z, size]."""
    return on_tiles(graph, like.type, plan, like.shape[3], name)


class BucketRing:
    """Buffers that move on by one tile at a time, as far as the overflow words say."""

    def __init__(
        self, graph: Graph, weights: SparseTensor, sources: list[Tensor], step: int, name: str
    ) -> None:
        self.graph, self.plan, self.sources, self.step = graph, weights.plan, sources, step
        self.name, self.head = name, weights.meta_info.slice(0, 2, 0)
        self.buffers = [buffer_like(graph, s, weights.plan, f"{name}/buffer") for s in sources]
        self.spare = [buffer_like(graph, s, weights.plan, f"{name}/spare") for s in sources]

    def moved(self, x: int, y: int) -> Sequence:
        steps = Sequence()
        for buffer, spare in zip(self.buffers, self.spare, strict=True):
            view = _moved(_moved(buffer, 0, x * self.step), 1, y * self.step)
            steps.add(Copy(view, spare), Copy(spare, buffer))
        return steps

    def add(
        self, compute: Sequence, sequence: Sequence, known: tuple[int, int] | None = None
    ) -> None:
        """Along y up to endY, then, for each x up to endX, once around y.

        With `known` (endX, endY) the steps are that many, whatever the overflow words say.
        """
        plan = self.plan
        if plan.x * plan.y == 1 or known == (1, 1):
            return
        for source, buffer in zip(self.sources, self.buffers, strict=True):
            sequence.add(Copy(source, buffer))
        along_y = Sequence([self.moved(0, 1), compute])
        along_x = Sequence([self.moved(1, 1), compute, Repeat(plan.y - 1, along_y)])
        if known is not None:
            sequence.add(Repeat(known[1] - 1, along_y), Repeat(known[0] - 1, along_x))
            return
        ends = self._ends(sequence)
        for end, body in ((ends[1], along_y), (ends[0], along_x)):
            loop = counted_for_loop(self.graph, 1, end, 1, lambda _, body=body: body, self.name)
            sequence.add(loop)

    def add_around_x(self, compute: Sequence, sequence: Sequence) -> None:
        """Once around x, for every y up to endY: all that a part of y has comes by its tiles."""
        plan = self.plan
        for source, buffer in zip(self.sources, self.buffers, strict=True):
            sequence.add(Copy(source, buffer))
        around = compute
        if plan.x > 1:
            around = Repeat(plan.x, Sequence([compute, self.moved(1, 0)]))
        if plan.y == 1:
            sequence.add(around)
            return
        body = Sequence([around, self.moved(0, 1)])
        limit = self._ends(sequence)[1]
        sequence.add(counted_for_loop(self.graph, 0, limit, 1, lambda _: body, self.name))

    def _ends(self, sequence: Sequence) -> Tensor:
        """(endX, endY)."""
        return cast(self.graph, self.head, UNSIGNED_INT, sequence, f"{self.name}/ends")


def of_group(buckets: Tensor, group: Ints, n_z: int) -> Slices:
    """For each tile the buckets of all z tiles of its place, one behind the other."""
    size = buckets.shape[3] * n_z
    return Slices(buckets.flatten(), group * size, (group + 1) * size)
