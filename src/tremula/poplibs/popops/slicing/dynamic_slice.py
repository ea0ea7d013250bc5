"""Dynamic slices: rows of a tensor from an offset known only while the program runs."""

from collections.abc import Iterator, Sequence

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_CHAR, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.blocks import BlockCuts
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops.raw_words import as_words
from tremula.poplibs.popops.slicing.codelets import dynamic_slice_codelet, dynamic_update_codelet
from tremula.poplibs.popops.slicing.layout import (
    check_copyable,
    check_dims,
    checked_indices,
    from_matrix,
    slice_shape,
    to_matrix,
)
from tremula.poplibs.popops.slicing.row_blocks import add_blocked_matrix, in_blocks, map_flat
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

Ints = np.ndarray


def dynamic_slice(
    graph: Graph,
    tensor: Tensor,
    offset: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    remap_out_of_bounds: bool = False,
) -> Tensor:
    """tensor[offset : offset + size] in each of `dims`; offset has one element per dimension.

    A slice that runs past the end of a dimension continues at its beginning. An offset that is
    itself out of range gives zeros or, with `remap_out_of_bounds`, counts as 0.
    """
    dims, sizes = tuple(dims), tuple(sizes)
    offsets = _checked("dynamic_slice", tensor, offset, dims, sizes)
    if 0 in sizes or not tensor.n_elems:
        shape = slice_shape(tensor.shape, dims, sizes)
        return graph.add_variable(tensor.type, shape, name or "sliced", mapping="linear")
    out = tensor
    for which in _best_order(tensor.shape, dims, sizes):
        out = _slice_dim(
            graph, out, offsets[which], dims[which], sizes[which], sequence,
            name or "dynamicSlice", remap_out_of_bounds,
        )  # fmt: skip
    return graph_copy(graph, out, sequence, name) if out is tensor else out


def dynamic_slice_with_output(
    graph: Graph,
    output: Tensor,
    tensor: Tensor,
    offset: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
) -> None:
    """dynamic_slice into an existing tensor; cheapest if that is laid out like the rows."""
    dims, sizes = tuple(dims), tuple(sizes)
    offsets = _checked("dynamic_slice_with_output", tensor, offset, dims, sizes)
    expected = slice_shape(tensor.shape, dims, sizes)
    _check_part("dynamic_slice_with_output", "output", output, expected, tensor.type)
    if not output.n_elems:
        return
    if not dims:
        sequence.add(Copy(tensor, output))
    order = _best_order(tensor.shape, dims, sizes)
    for index, which in enumerate(order):
        tensor = _slice_dim(
            graph, tensor, offsets[which], dims[which], sizes[which], sequence,
            name or "dynamicSlice", False, output if index == len(order) - 1 else None,
        )  # fmt: skip


def _check_part(
    operation: str, role: str, part: Tensor, expected: tuple[int, ...], type: Type
) -> None:
    """An update or result must have the slice's shape and type."""
    if part.shape != expected or part.type != type:
        raise PoplibsError(
            f"{operation} got an {role} of {part.type} {list(part.shape)}, expected "
            f"{type} {list(expected)}.",
            source=user_source(),
            hint=f"give the {role} the shape of the slice",
        )


def graph_copy(graph: Graph, tensor: Tensor, sequence: ProgramSequence, name: str) -> Tensor:
    copy = graph.clone(tensor, name or "copy")
    sequence.add(Copy(tensor, copy))
    return copy


def dynamic_update(
    graph: Graph,
    tensor: Tensor,
    update: Tensor,
    offset: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    remap_out_of_bounds: bool = False,
) -> None:
    """tensor[offset : offset + size] = update, in place; an offset out of range changes nothing."""
    dims, sizes = tuple(dims), tuple(sizes)
    offsets = _checked("dynamic_update", tensor, offset, dims, sizes)
    expected = slice_shape(tensor.shape, dims, sizes)
    _check_part("dynamic_update", "update", update, expected, tensor.type)
    if 0 in sizes or not tensor.n_elems:
        return
    if not dims:
        sequence.add(Copy(update, tensor))
        return
    name = name or "dynamicUpdate"
    order = _best_order(tensor.shape, dims, sizes)
    nested = [tensor]  # ever smaller slices, so that each update is of one dimension
    for which in order[:-1]:
        smaller = _slice_dim(
            graph, nested[-1], offsets[which], dims[which], sizes[which], sequence, name,
            remap_out_of_bounds,
        )  # fmt: skip
        nested.append(smaller)
    inner = update
    for which, outer in zip(reversed(order), reversed(nested), strict=True):
        _update_dim(
            graph, outer, inner, offsets[which], dims[which], sequence, name, remap_out_of_bounds
        )
        inner = outer


def _checked(
    what: str, tensor: Tensor, offset: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...]
) -> Tensor:
    check_dims(what, tensor.shape, dims, sizes)
    check_copyable(what, tensor.type)
    if offset.n_elems != len(dims):
        raise PoplibsError(
            f"{what} got {offset.n_elems} offsets for {len(dims)} dims.",
            source=user_source(),
            hint="give one offset per sliced dimension",
        )
    return checked_indices(what, offset).flatten()


def _best_order(shape: tuple[int, ...], dims: tuple[int, ...], sizes: tuple[int, ...]) -> list[int]:
    """The dimension that shrinks most first; those that keep their size still apply the offset."""
    shrinks = [sizes[i] / shape[d] for i, d in enumerate(dims)]
    return sorted(range(len(dims)), key=lambda i: shrinks[i])


def regions_of_slice(graph: Graph, matrix: Tensor) -> tuple[BlockCuts, Ints]:
    """Columns by the tile that holds their first row, and those tiles."""
    mapping = graph.get_tile_mapping(matrix[0])
    columns = np.append(mapping.begin, matrix.shape[1]).astype(np.int64)
    return BlockCuts(np.array([0, matrix.shape[0]], np.int64), columns), mapping.tile


def block_slices(matrix: Tensor, cuts: BlockCuts) -> Slices:
    """Each column block of a matrix as one sub-vector of words."""
    q = np.arange(len(cuts.column) - 1)
    begin = cuts.begin(np.zeros_like(q), q)
    return Slices(as_words(in_blocks(matrix, cuts)), begin, begin + cuts.n_rows * cuts.width(q))


def add_matrix_like(
    graph: Graph, type: Type, n_rows: int, cuts: BlockCuts, tiles: Ints, name: str
) -> tuple[Tensor, BlockCuts]:
    """A new matrix of `n_rows` with the columns of `cuts` on their tiles, and its own cuts."""
    own = BlockCuts(np.array([0, n_rows], np.int64), cuts.column)
    matrix = add_blocked_matrix(graph, type, own, name)
    q = np.arange(len(tiles))
    begin = own.begin(np.zeros_like(q), q)
    map_flat(graph, in_blocks(matrix, own), begin, begin + n_rows * own.width(q), tiles)
    return matrix, own


def _slice_dim(  # noqa: PLR0917 - steps of one function, taken out of it
    graph: Graph,
    tensor: Tensor,
    offset: Tensor,
    dim: int,
    size: int,
    sequence: ProgramSequence,
    name: str,
    remaps: bool,
    output: Tensor | None = None,
) -> Tensor:
    table = to_matrix(tensor, (dim,))
    cuts, tiles = regions_of_slice(graph, table)
    if output is None:
        out, own = add_matrix_like(graph, tensor.type, size, cuts, tiles, name)
    else:
        out = to_matrix(output, (dim,))
        own = BlockCuts(np.array([0, size], np.int64), cuts.column)
    words = block_slices(out, own)
    codelet = dynamic_slice_codelet(words.tensor.type)
    fields = _block_fields(table, cuts, offset, remaps)
    run_vertices(graph, codelet, {**fields, "out": words}, tiles, sequence, name)
    return from_matrix(out, slice_shape(tensor.shape, (dim,), (size,)), (dim,))


def _update_dim(  # noqa: PLR0917 - steps of one function, taken out of it
    graph: Graph,
    tensor: Tensor,
    update: Tensor,
    offset: Tensor,
    dim: int,
    sequence: ProgramSequence,
    name: str,
    remaps: bool,
) -> None:
    table, new = to_matrix(tensor, (dim,)), to_matrix(update, (dim,))
    cuts, tiles = regions_of_slice(graph, table)
    own = BlockCuts(np.array([0, new.shape[0]], np.int64), cuts.column)
    words = block_slices(new, own)
    codelet = dynamic_update_codelet(words.tensor.type)
    fields = _block_fields(table, cuts, offset, remaps)
    run_vertices(graph, codelet, {**fields, "update": words}, tiles, sequence, name)


def _block_fields(
    table: Tensor, cuts: BlockCuts, offset: Tensor, remaps: bool
) -> dict[str, object]:
    """What slices and updates have in common: a block of the table each, and where to begin."""
    return {
        "offset": offset.expand([0]).broadcast(len(cuts.column) - 1),
        "table": block_slices(table, cuts),
        "n_columns": np.diff(cuts.column),
        "remaps": int(remaps),
    }


# -- registry --------------------------------------------------------------------------------------

_TYPES = (FLOAT, HALF, INT, UNSIGNED_INT, UNSIGNED_CHAR, BOOL)
_CASES = (
    ((7, 5), (0,), (1,), (3,)),
    ((7, 5), (0,), (3,), (5,)),  # wraps around
    ((4, 6), (1,), (2,), (1,)),
    ((3, 4, 5), (0, 2), (1, 2), (2, 3)),
    ((1,), (0,), (1,), (0,)),
    ((6, 3), (0,), (0,), (2,)),
)


def _random(type: Type, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2 if type == BOOL else 100, shape).astype(type.dtype)


def _slice_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, dims, sizes, offset in _CASES:
        inputs = (_random(type, shape, rng), np.array(offset, np.uint32))
        yield Sample(inputs, {"dims": dims, "sizes": sizes})
    yield Sample((_random(type, (4, 3), rng), np.array([9], np.uint32)))
    remapped = {"remap_out_of_bounds": True}
    yield Sample((_random(type, (4, 3), rng), np.array([9], np.uint32)), remapped)


def _update_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _slice_samples(type, rng):
        table, offset = sample.inputs
        dims, sizes = sample.options.get("dims", (0,)), sample.options.get("sizes", (1,))
        shape = slice_shape(table.shape, dims, sizes)  # pyright: ignore[reportArgumentType]
        yield Sample((table, _random(type, shape, rng), offset), sample.options)


def _places(
    table: np.ndarray, offset: np.ndarray, dims: Sequence[int], sizes: Sequence[int], remaps: bool
) -> tuple[np.ndarray, ...] | None:
    """Open mesh of the rows a slice names, or None if it is out of range."""
    axes = [np.arange(n) for n in table.shape]
    for dim, size, first in zip(dims, sizes, offset.tolist(), strict=True):
        if first >= table.shape[dim] and not remaps:
            return None
        first = 0 if first >= table.shape[dim] else first
        axes[dim] = (first + np.arange(size)) % table.shape[dim]
    return np.ix_(*axes)


def _slice_reference(
    table: np.ndarray,
    offset: np.ndarray,
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    remap_out_of_bounds: bool = False,
) -> np.ndarray:
    places = _places(table, offset, dims, sizes, remap_out_of_bounds)
    if places is None:
        return np.zeros(slice_shape(table.shape, tuple(dims), tuple(sizes)), table.dtype)
    return table[places]


def _update_reference(
    table: np.ndarray,
    update: np.ndarray,
    offset: np.ndarray,
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    remap_out_of_bounds: bool = False,
) -> np.ndarray:
    places = _places(table, offset, dims, sizes, remap_out_of_bounds)
    result = table.copy()
    if places is not None:
        result[places] = update
    return result


_MATRIX, _OFFSET = np.zeros((4, 3), np.float32), np.zeros(1, np.uint32)

register(
    Op(
        name="popops.dynamic_slice",
        function=dynamic_slice,
        about="Rows of a tensor from an offset known only while the program runs.",
        types=_TYPES,
        samples=_slice_samples,
        reference=_slice_reference,
        codelets=(dynamic_slice_codelet,),
        errors=(
            ErrorCase(Sample((_MATRIX, _OFFSET), {"sizes": (9,)}), "a slice of sizes [9]"),
            ErrorCase(Sample((_MATRIX, _OFFSET), {"dims": (5,)}), "dims [5] of a tensor of shape"),
            ErrorCase(Sample((_MATRIX, np.zeros(2, np.uint32))), "got 2 offsets for 1 dims"),
            ErrorCase(Sample((_MATRIX, np.zeros(1, np.float32))), "got indices of type float"),
        ),
    )
)
register(
    Op(
        name="popops.dynamic_update",
        function=dynamic_update,
        about="Overwrite rows of a tensor from an offset known only while the program runs.",
        types=_TYPES,
        samples=_update_samples,
        reference=_update_reference,
        codelets=(dynamic_update_codelet, dynamic_slice_codelet),
        errors=(
            ErrorCase(
                Sample((_MATRIX, np.zeros((2, 3), np.float32), _OFFSET)),
                "expected float [1, 3]",
            ),
        ),
        is_in_place=True,
    )
)
