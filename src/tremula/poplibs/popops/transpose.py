"""popops: transposes of matrices within tiles, and tensors regrouped by them."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type, uint32, uint64
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.families import family
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, distinct_values, register

TYPES = (FLOAT, HALF, INT, UNSIGNED_INT, BOOL)
# Published: entry, per matrix, per row of grains, and per grain of 4x4 halves or 2x2 words.
START_SLOTS, MATRIX_SLOTS, GRAIN_ROW_SLOTS = 29, 18, 12
GRAINS = {2: (4, 4), 4: (2, 3)}  # bytes -> (side of a grain, its slots)
ELEMENT_SLOTS = 5  # derived: one by one, where grains do not fit
MAX_VERTEX_ELEMS = 4096  # larger matrices are cut by columns


@family
def transpose_vertex(T: Type) -> type:  # noqa: N803
    """Transposes matrices that lie one after the other."""

    class Transpose(Vertex):
        name = f"popops::Transpose<{T}>"
        provenance = "published"
        source: Input[Vector[T]]
        out: Output[Vector[T]]
        n_rows: uint32
        n_cols: uint32

        def compute(self: Any) -> None:
            n_rows, n_cols = self.n_rows, self.n_cols
            n_elems = n_rows * n_cols
            for base in range(0, len(self.out), n_elems):
                for c in range(n_cols):
                    for r in range(n_rows):
                        value = self.source[uint64(base + r * n_cols + c)]
                        self.out[uint64(base + c * n_rows + r)] = value

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return transpose_cycles(v.sizes["out"], v.state["n_rows"], v.state["n_cols"], T)

        flops = no_flops

    return Transpose


def transpose_cycles(
    n_elems: np.ndarray, n_rows: np.ndarray, n_cols: np.ndarray, type: Type
) -> np.ndarray:
    """Worker cycles of a vertex that transposes matrices of n_elems elements in all."""
    n_rows, n_cols = n_rows.astype(np.int64), n_cols.astype(np.int64)
    n_matrices = n_elems // np.maximum(n_rows * n_cols, 1)
    side, slots = GRAINS.get(type.n_bytes, (1, ELEMENT_SLOTS))
    fits = (n_rows % side == 0) & (n_cols % side == 0)
    in_grains = n_rows // side * (GRAIN_ROW_SLOTS + n_cols // side * slots)
    one_by_one = n_rows * (GRAIN_ROW_SLOTS + n_cols * ELEMENT_SLOTS)
    return START_SLOTS + n_matrices * (MATRIX_SLOTS + np.where(fits, in_grains, one_by_one))


def can_use_fast_transpose(type: Type, n_rows: int, n_cols: int) -> bool:
    """Whether matrices consist of whole grains, which vector instructions transpose."""
    side = GRAINS.get(type.n_bytes, (0, 0))[0]
    return side > 0 and n_rows % side == 0 and n_cols % side == 0


def partial_transpose(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The innermost two dimensions exchanged, as a new tensor; the work is where the data is."""
    if tensor.rank < 2 or tensor.type not in TYPES:
        raise PoplibsError(
            f"partial_transpose got {tensor.type} of shape {list(tensor.shape)}.",
            source=user_source(),
            hint="give two dimensions or more, of " + ", ".join(str(t) for t in TYPES),
        )
    *outer, n_rows, n_cols = tensor.shape
    name = name or "transpose"
    out = graph.add_variable(tensor.type, [*outer, n_cols, n_rows], name)
    if tensor.n_elems:
        compute_set = graph.add_compute_set(name)
        add_transpose_vertices(graph, compute_set, tensor, out)
        sequence.add(Execute(compute_set))
    return out


def add_transpose_vertices(
    graph: Graph, compute_set: ComputeSet, source: Tensor, out: Tensor
) -> None:
    """Vertices that transpose matrices [..., n_rows, n_cols] to `out`, which they also map."""
    *_, n_rows, n_cols = source.shape
    matrices = source.reshape((-(-source.n_elems // (n_rows * n_cols)), n_rows, n_cols))
    results = out.reshape((matrices.shape[0], n_cols, n_rows))
    n_wide = max(1, min(n_cols, MAX_VERTEX_ELEMS // n_rows))
    n_whole = n_cols // n_wide * n_wide
    for first, last, width in ((0, n_whole, n_wide), (n_whole, n_cols, n_cols - n_whole)):
        if last > first:
            strips = matrices.slice(first, last, 2).reshape(
                (matrices.shape[0], n_rows, (last - first) // width, width)
            )
            strips = strips.dim_shuffle([0, 2, 1, 3])  # [matrix, strip, row, column]
            to = results.slice(first, last, 1)
            _add_strips(graph, compute_set, strips.flatten(0, 2), to, width)


def _add_strips(
    graph: Graph, compute_set: ComputeSet, strips: Tensor, out: Tensor, width: int
) -> None:  # fmt: skip
    """Strips [n, n_rows, width] to the flat `out`; those on one tile are dealt to its workers."""
    n, n_rows, _ = strips.shape
    size = n_rows * width
    mapping = graph.get_tile_mapping(strips)
    tile = mapping.tile[np.searchsorted(mapping.begin, np.arange(n) * size, "right") - 1]
    first = np.flatnonzero(np.append([True], tile[1:] != tile[:-1]))
    count = np.diff(np.append(first, n))
    n_parts = np.minimum(count, graph.target.n_worker_contexts)
    run, part = expand(n_parts)
    begin = first[run] + part * count[run] // n_parts[run]
    end = first[run] + (part + 1) * count[run] // n_parts[run]
    tiles, flat_out = tile[first][run], out.flatten()
    graph.set_tile_mapping(
        flat_out, TileMapping(begin * size, end * size, tiles, graph.target.n_tiles)
    )
    fields = {
        "source": Slices(strips, begin * size, end * size),
        "out": Slices(flat_out, begin * size, end * size),
        "n_rows": n_rows,
        "n_cols": width,
    }
    graph.add_vertices(compute_set, transpose_vertex(strips.type), fields, tiles=tiles)


# -- regrouping ------------------------------------------------------------------------------------


class Grouping(NamedTuple):
    """`size` neighbours along a dimension lie side by side in memory."""

    dim: int
    size: int


def innermost_grouping(tensor: Tensor) -> Grouping | None:
    """The dimension along which neighbours lie side by side, and how many do at least."""
    for dim in reversed(range(tensor.rank)):
        line = tensor[tuple(slice(None) if d == dim else 0 for d in range(tensor.rank))]
        if line.n_elems < 2:
            continue
        addresses = line.addresses()
        cuts = np.flatnonzero(np.diff(addresses) != 1) + 1
        size = int(np.gcd.reduce([*cuts.tolist(), line.n_elems]))
        if size > 1:
            return Grouping(dim, size)
    return None


def regroup_tensor(
    graph: Graph,
    tensor: Tensor,
    old: Grouping,
    new: Grouping,
    sequence: Sequence,
    name: str = "",
) -> Tensor:
    """A copy with `new` innermost in memory; fast where `old` is innermost now."""
    _check_grouping(tensor, old, new)
    shape = list(tensor.shape)
    order = sorted((old, new))
    parts: list[int] = []
    outer, inner = [], {}
    for dim, n in enumerate(shape):
        group = next((g for g in order if g.dim == dim), None)
        outer.append(len(parts))
        parts.append(n if group is None else n // group.size)
        if group is not None:
            inner[dim] = len(parts)
            parts.append(group.size)
    to_front = [*outer, inner[new.dim], inner[old.dim]]
    blocks = tensor.reshape(parts).dim_shuffle(to_front)
    regrouped = partial_transpose(graph, blocks, sequence, name or "regroup")
    back = np.argsort([*outer, inner[old.dim], inner[new.dim]]).tolist()
    return regrouped.dim_shuffle(back).reshape(shape)


def regroup_if_beneficial(
    graph: Graph, tensor: Tensor, like: Tensor, sequence: Sequence, name: str = ""
) -> Tensor:
    """The tensor regrouped as `like` is, if fast transposes can do it; else the tensor itself."""
    old, new = innermost_grouping(tensor), innermost_grouping(like)
    if old is None or new is None or old.dim == new.dim or new.dim >= tensor.rank:
        return tensor
    divides = tensor.shape[new.dim] % new.size == 0 and tensor.shape[old.dim] % old.size == 0
    if not divides or not can_use_fast_transpose(tensor.type, new.size, old.size):
        return tensor
    return regroup_tensor(graph, tensor, old, new, sequence, name)


def _check_grouping(tensor: Tensor, old: Grouping, new: Grouping) -> None:
    is_known = all(0 <= g.dim < tensor.rank and g.size > 0 for g in (old, new))
    if (
        is_known
        and old.dim != new.dim
        and all(tensor.shape[g.dim] % g.size == 0 for g in (old, new))
    ):
        return
    raise PoplibsError(
        f"regroup_tensor cannot go from groups of {old.size} in dimension {old.dim} to groups of "
        f"{new.size} in dimension {new.dim} of a tensor of shape {list(tensor.shape)}.",
        source=user_source(),
        hint="use two different dimensions, and sizes that divide them",
    )


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((4, 4), (3, 5), (6, 8, 4), (2, 3, 4, 6), (1, 9), (5, 1), (2, 0, 3), (70, 90)):
        yield Sample((distinct_values(type, shape, rng),))


def _regroup_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, old, new in (
        ((8, 6, 4), (2, 4), (0, 4)),
        ((6, 10), (1, 2), (0, 3)),
        ((4, 4), (0, 4), (1, 4)),
    ):
        options = {"old": Grouping(*old), "new": Grouping(*new)}
        yield Sample((distinct_values(type, shape, rng),), options)


register(
    Op(
        name="popops.partial_transpose",
        function=partial_transpose,
        about="the innermost two dimensions exchanged, in memory",
        types=TYPES,
        samples=_samples,
        reference=lambda values: np.swapaxes(values, -1, -2),
        codelets=(transpose_vertex,),
        errors=(ErrorCase(Sample((np.ones(3, np.float32),)), "partial_transpose got float of"),),
    )
)
register(
    Op(
        name="popops.regroup_tensor",
        function=regroup_tensor,
        about="the same elements, with another dimension innermost in memory",
        types=TYPES,
        samples=_regroup_samples,
        reference=lambda values, **_: values,
        codelets=(transpose_vertex,),
        errors=(
            ErrorCase(
                Sample(
                    (np.ones((4, 6), np.float32),),
                    {"old": Grouping(1, 2), "new": Grouping(0, 3)},
                ),
                "cannot go from groups of 2 in dimension 1 to groups of 3 in dimension 0",
            ),
        ),
    )
)
