"""Tensor: an immutable, free view of variables. No view ever touches elements."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tremula.base.errors import TensorCreationError, TensorIndexError, TypeMismatch
from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.poplar.tensors.blocks import BlockPieces
from tremula.poplar.tensors.checks import (
    bad_slice,
    check_moves,
    check_permutation,
    check_reinterpret,
    check_reshape,
    check_slice_ends,
    check_squeeze,
    checked_dims,
    no_dimension,
    out_of_range,
    repeat_count,
    reshape_sizes,
    whole_index,
    whole_indices,
)
from tremula.poplar.tensors.regions import (
    Interval,
    contiguous_regions,
    intersect,
    is_one_region,
    nests,
    regions_of_variables,
)
from tremula.poplar.tensors.runs import (
    Pieces,
    Runs,
    byte_intervals,
    concat_runs,
    has_aliases,
    merge_dims,
    reshaped_strides,
    row_major,
    strided_runs,
)
from tremula.poplar.tensors.variables import VariableTable


class Tensor:
    """A view: type, shape, and where its elements are.

    Element (i, j, …) is at position offset + i*strides[0] + j*strides[1] + …: an element address
    of the graph's address space or, when `pieces` is set, a position in that virtual buffer.
    """

    __slots__ = ("offset", "pieces", "shape", "strides", "type", "variables")

    def __init__(
        self,
        variables: VariableTable,
        type: Type,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        pieces: Pieces | None = None,
    ):
        self.variables = variables
        self.type = type
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.pieces = pieces

    # -- shape -------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def n_elems(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def dim(self, index: int) -> int:
        """The size of a dimension."""
        return self.shape[self._checked_dim(index)]

    def __len__(self) -> int:
        if not self.shape:
            raise TensorIndexError(
                "a scalar tensor has no length.", source=user_source(), hint="use tensor.n_elems"
            )
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.type}, {list(self.shape)}, {self._describe_variables()})"

    def _describe_variables(self) -> str:
        names = [self.variables.names[v] for v in self.variable_ids()[:3]]
        return "+".join(names) or "empty"

    # -- where the elements are --------------------------------------------------------------------

    def runs(self) -> Runs:
        """Element addresses in view order as runs."""
        virtual = strided_runs(self.offset, self.shape, self.strides)
        return virtual if self.pieces is None else self.pieces.lookup(virtual)

    def _runs_in_any_order(self) -> Runs:
        """The runs of all elements with the widest strides outermost: fewest of them."""
        dims = sorted(range(self.rank), key=lambda d: -abs(self.strides[d]))
        shape, strides = (tuple(of[d] for d in dims) for of in (self.shape, self.strides))
        virtual = strided_runs(self.offset, shape, strides)
        return virtual if self.pieces is None else self.pieces.lookup(virtual)

    def addresses(self) -> np.ndarray:
        """int64[shape]: the element address of every element. Costs memory per element."""
        return self.runs().addresses().reshape(self.shape)

    def byte_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Byte intervals [begin, end) the view covers, in view order."""
        begin, end, _ = byte_intervals(self.runs(), self.type.n_bytes)
        return begin, end

    def covered_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Byte intervals [begin, end) the view covers, in any order: as few as are known."""
        size = self.type.n_bytes
        if self.pieces is not None and self.n_elems == self.pieces.n_elems and self._is_all():
            begin, end = self.pieces.union()
            return begin * size, end * size
        begin, end, _ = byte_intervals(self._runs_in_any_order(), size)
        return begin, end

    def _is_all(self) -> bool:
        """Whether a view of as many elements as its pieces have shows all of them."""
        dims = sorted(range(self.rank), key=lambda d: -abs(self.strides[d]))
        shape, strides = (tuple(of[d] for d in dims) for of in (self.shape, self.strides))
        return self.offset == 0 and merge_dims(shape, strides)[1] in ([1], [])

    def ordered_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Byte intervals of all elements in view order; a repeated element has one each time."""
        begin, end, _ = byte_intervals(self.runs().unrolled(), self.type.n_bytes)
        return begin, end

    def _only_variable(self) -> int | None:
        """The variable of a view that is known to be within one."""
        if self.pieces is not None and not isinstance(self.pieces, BlockPieces):
            layout = self.pieces.layout
            return layout.variables[0] if layout and len(layout.variables) == 1 else None
        first = self.offset if self.pieces is None else self.pieces.offset
        return self.variables.id_at(first * self.type.n_bytes)

    def _known_variables(self) -> tuple[int, ...]:
        """The variables of a view, or of what it is a view of; none if they are not known yet."""
        only = self._only_variable()
        if only is not None:
            return (only,)
        layout = None if self.pieces is None else self.pieces.layout
        return () if layout is None else layout.variables

    def variable_ids(self) -> list[int]:
        """Ids of the variables the view touches, ascending."""
        if not self.n_elems:
            return []
        only = self._only_variable()
        if only is not None:
            return [only]
        # A run never leaves its variable.
        return self.variables.holders_of(self._runs_in_any_order().start, self.type.n_bytes)

    # -- indexing and slicing ----------------------------------------------------------------------

    def __getitem__(self, index: object) -> "Tensor":
        if index.__class__ is int:  # the fast path: t[i]
            shape = self.shape
            if not shape or not -shape[0] <= index < shape[0]:  # pyright: ignore[reportOperatorIssue]
                raise out_of_range(shape, index, 0)
            if index < 0:  # pyright: ignore[reportOperatorIssue]
                index += shape[0]  # pyright: ignore[reportOperatorIssue]
            strides = self.strides
            return Tensor(
                self.variables,
                self.type,
                self.offset + index * strides[0],  # pyright: ignore[reportOperatorIssue]
                shape[1:],
                strides[1:],
                self.pieces,
            )
        return self._getitem_general(index if isinstance(index, tuple) else (index,))

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    def _getitem_general(self, index: tuple) -> "Tensor":
        index = whole_indices(self.shape, index)
        offset, shape, strides = self.offset, [], []
        for dim, part in enumerate(index):
            size, stride = self.shape[dim], self.strides[dim]
            if isinstance(part, slice):
                picked = range(*part.indices(size))
                offset += picked.start * stride if picked else 0
                shape.append(len(picked))
                strides.append(stride * picked.step)
            else:
                position = whole_index(part)
                if not -size <= position < size:
                    raise out_of_range(self.shape, position, dim)
                offset += (position % size) * stride
        rest = len(index)
        return self._view(offset, (*shape, *self.shape[rest:]), (*strides, *self.strides[rest:]))

    def index(self, indices: Sequence[int]) -> "Tensor":
        """The part at the given indices, of as many dimensions less."""
        return self[tuple(indices)]

    def slice(
        self,
        begin: int | Sequence[int] | Interval,
        end: int | Sequence[int] | None = None,
        dim: int = 0,
    ) -> "Tensor":
        """Elements [begin, end) of a dimension, or of every dimension if given lists."""
        if begin.__class__ is int and end.__class__ is int and dim.__class__ is int:
            shape, strides = self.shape, self.strides
            if not (0 <= dim < len(shape) and 0 <= begin <= end <= shape[dim]):  # pyright: ignore[reportOperatorIssue]
                raise bad_slice(shape, begin, end, dim)
            return Tensor(
                self.variables,
                self.type,
                self.offset + begin * strides[dim],  # pyright: ignore[reportOperatorIssue]
                (*shape[:dim], end - begin, *shape[dim + 1 :]),  # pyright: ignore[reportOperatorIssue]
                strides,
                self.pieces,
            )
        if isinstance(begin, Interval):
            return self.slice(begin.begin, begin.end, dim if end is None else whole_index(end))
        if isinstance(begin, Iterable) and isinstance(end, Iterable):
            begins, ends = list(begin), list(end)
            check_slice_ends(self.rank, begins, ends)
            view = self
            for d, (low, high) in enumerate(zip(begins, ends, strict=True)):
                view = view.slice(whole_index(low), whole_index(high), d)
            return view
        return self.slice(whole_index(begin), whole_index(end), self._checked_dim(dim))

    def slices(self, parts: Iterable, dim: int = 0) -> list["Tensor"]:
        """A slice per interval, per list of intervals (concatenated), or per index."""
        result = []
        for part in parts:
            if isinstance(part, Interval):
                result.append(self.slice(part.begin, part.end, dim))
            elif isinstance(part, int | np.integer):
                result.append(self.slice(int(part), int(part) + 1, dim))
            else:
                if not all(isinstance(each, Interval) for each in part):
                    raise TypeMismatch(
                        f"slices takes indices, intervals and lists of intervals, got {part!r}.",
                        source=user_source(),
                        hint="write tensor.slices([Interval(0, 2), 5])",
                    )
                result.append(concat([self.slice(i.begin, i.end, dim) for i in part], dim))
        return result

    # -- reshaping ---------------------------------------------------------------------------------

    def flatten(self, begin_dim: int = 0, end_dim: int | None = None) -> "Tensor":
        """Merge dimensions [begin_dim, end_dim) into one, row-major."""
        end_dim = self.rank if end_dim is None else end_dim
        merged = math.prod(self.shape[begin_dim:end_dim])
        return self.reshape((*self.shape[:begin_dim], merged, *self.shape[end_dim:]))

    def reshape(self, shape: Sequence[int]) -> "Tensor":
        """A view of all elements in another shape; one size may be -1."""
        shape = reshape_sizes(shape)
        check_reshape(self.shape, shape)
        strides = reshaped_strides(self.shape, self.strides, shape)
        if strides is not None:
            return self._view(self.offset, shape, strides)
        return Tensor(self.variables, self.type, 0, shape, row_major(shape), Pieces(self.runs()))

    def reshape_partial(self, begin_dim: int, end_dim: int, sizes: Sequence[int]) -> "Tensor":
        """Dimensions from `begin` to `end` in another shape."""
        return self.reshape((*self.shape[:begin_dim], *sizes, *self.shape[end_dim:]))

    def dim_shuffle(self, permutation: Sequence[int]) -> "Tensor":
        """Dimensions in another order."""
        check_permutation(self.rank, permutation)
        return self._view(
            self.offset,
            tuple(self.shape[d] for d in permutation),
            tuple(self.strides[d] for d in permutation),
        )

    def dim_shuffle_partial(self, source: Sequence[int], destination: Sequence[int]) -> "Tensor":
        """Move dimension source[i] to place destination[i]; the others keep their order."""
        for dim in (*source, *destination):
            self._checked_dim(dim)
        check_moves(source, destination)
        place = dict(zip(destination, source, strict=True))
        others = iter(d for d in range(self.rank) if d not in set(source))
        return self.dim_shuffle(
            [place[d] if d in place else next(others) for d in range(self.rank)]
        )

    def dim_roll(self, dim: int, to: int = 0) -> "Tensor":
        """One dimension moved to another place."""
        return self.dim_shuffle_partial([self._checked_dim(dim)], [self._checked_dim(to)])

    def transpose(self) -> "Tensor":
        """The last two dimensions, or the given ones, exchanged."""
        if self.rank != 2:
            raise TensorCreationError(
                f"transpose needs a rank-2 tensor, got shape {list(self.shape)}.",
                source=user_source(),
                hint="use dim_shuffle",
            )
        return self.dim_shuffle([1, 0])

    def expand(self, dims: Sequence[int]) -> "Tensor":
        """Insert a dimension of size 1 before each of the given dimensions."""
        shape, strides = list(self.shape), list(self.strides)
        for dim in sorted(checked_dims(self.rank, dims), reverse=True):
            if not 0 <= dim <= self.rank:
                raise no_dimension(self.shape, dim)
            shape.insert(dim, 1)
            strides.insert(dim, 0)
        return self._view(self.offset, tuple(shape), tuple(strides))

    def squeeze(self, dims: Sequence[int] | None = None) -> "Tensor":
        """Remove the given dimensions of size 1 (all of them if not given)."""
        ones = {d for d, s in enumerate(self.shape) if s == 1}
        chosen = ones if dims is None else set(checked_dims(self.rank, dims))
        check_squeeze(self.shape, chosen)
        remaining = [d for d in range(self.rank) if d not in chosen]
        return self._view(
            self.offset,
            tuple(self.shape[d] for d in remaining),
            tuple(self.strides[d] for d in remaining),
        )

    # -- repeating and skipping --------------------------------------------------------------------

    def reverse(self, dim: int = 0) -> "Tensor":
        """A dimension in reverse order."""
        return self._getitem_general(
            (slice(None),) * self._checked_dim(dim) + (slice(None, None, -1),)
        )

    def sub_sample(self, stride: int, dim: int = 0) -> "Tensor":
        """Every `stride`-th slice of a dimension."""
        if stride < 1:
            raise TensorCreationError(
                f"sub_sample needs a stride of at least 1, got {stride}.",
                source=user_source(),
                hint="use reverse()",
            )
        return self._getitem_general(
            (slice(None),) * self._checked_dim(dim) + (slice(None, None, stride),)
        )

    def upsample(self, scale: int, dim: int = 0) -> "Tensor":
        """Repeat each element `scale` times along a dimension."""
        dim = self._checked_dim(dim)
        return self._repeat(scale, dim + 1).flatten(dim, dim + 2)

    def broadcast(self, count: int, dim: int = 0) -> "Tensor":
        """Repeat the whole tensor `count` times along a dimension."""
        dim = self._checked_dim(dim)
        return self._repeat(count, dim).flatten(dim, dim + 2)

    def _repeat(self, count: int, before: int) -> "Tensor":
        count = repeat_count(count)
        shape = (*self.shape[:before], count, *self.shape[before:])
        return self._view(self.offset, shape, (*self.strides[:before], 0, *self.strides[before:]))

    def reinterpret(self, type: Type | str) -> "Tensor":
        """A view of the bits as another type of the same size."""
        type = as_type(type)
        check_reinterpret(self.type, type)
        return Tensor(self.variables, type, self.offset, self.shape, self.strides, self.pieces)

    # -- properties --------------------------------------------------------------------------------

    @property
    def is_contiguous(self) -> bool:
        """One ascending region of one variable."""
        return is_one_region(self.runs())

    @property
    def contains_aliases(self) -> bool:
        """Some element appears twice."""
        pieces = self.pieces
        if pieces is not None and pieces.repeats is None and 2 * self.n_elems >= pieces.n_elems:
            pieces.repeats_elements()
        if nests(self.shape, self.strides) and (pieces is None or pieces.repeats is False):
            return False
        return has_aliases(self._runs_in_any_order())

    @property
    def contains_constant(self) -> bool:
        """Is any element a constant?"""
        return any(self.variables.is_constant[v] for v in self.variable_ids())

    @property
    def is_parallel_writeable(self) -> bool:
        """No aliases and no constants: vertices may write it in parallel."""
        return not self.contains_aliases and not self.contains_constant

    @property
    def metadata(self) -> "Tensor | None":
        """The metadata scalar of an 8-bit float tensor; bytes seen as such have none."""
        if not self.type.requires_metadata:
            return None
        ids = {self.variables.metadata_of.get(v) for v in self.variable_ids()}
        result = next(iter(ids), None)
        return None if result is None or len(ids) > 1 else variable_tensor(self.variables, result)

    def contiguous_regions(self) -> list[Interval]:
        """Intervals of the flattened view that are contiguous in memory."""
        return contiguous_regions(self.ordered_intervals(), self.type.n_bytes)

    def var_regions(self) -> list[tuple[int, Interval]]:
        """(variable id, element interval of the variable) in view order."""
        intervals = self.ordered_intervals()
        return regions_of_variables(self.variables, intervals, self.type.n_bytes)

    def intersects_with(self, other: "Tensor") -> bool:
        """Do two tensors share an element?"""
        if not self.n_elems or not other.n_elems:
            return False
        mine, others = self._known_variables(), other._known_variables()
        if mine and others and not set(mine).intersection(others):
            return False
        return intersect(self.covered_intervals(), other.covered_intervals())

    def __eq__(self, other: object) -> bool:
        """Whether two views are equal: type, shape and elements; not their values."""
        if not isinstance(other, Tensor):
            return NotImplemented
        return (
            self.variables is other.variables
            and self.type == other.type
            and self.shape == other.shape
            and bool((self.addresses() == other.addresses()).all())
        )

    def __hash__(self) -> int:
        return hash((id(self.variables), self.type.name, self.shape))

    # -- helpers -----------------------------------------------------------------------------------

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> "Tensor":
        return Tensor(self.variables, self.type, offset, shape, strides, self.pieces)

    def _checked_dim(self, dim: int) -> int:
        if not isinstance(dim, int | np.integer) or not 0 <= dim < self.rank:
            raise no_dimension(self.shape, dim)
        return int(dim)


def variable_tensor(variables: VariableTable, variable: int) -> Tensor:
    """The whole of a variable."""
    type, shape = variables.types[variable], variables.shapes[variable]
    offset = variables.base_bytes[variable] // type.n_bytes
    return Tensor(variables, type, offset, shape, row_major(shape))


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors along a dimension."""
    tensors = list(tensors)
    if not tensors:
        raise TensorCreationError(
            "concat needs at least one tensor.", source=user_source(), hint="give one or more"
        )
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TensorCreationError(
                f"concat got {type(t).__name__}, expected tensors.",
                source=user_source(),
                hint="give a list of tensors",
            )
    if len(tensors) == 1:
        return tensors[0]
    _check_concat(tensors, dim)
    rolled = [t if dim == 0 else t.dim_roll(dim, 0) for t in tensors]
    shape = (sum(t.shape[0] for t in rolled), *rolled[0].shape[1:])
    pieces = Pieces(concat_runs([t.runs() for t in rolled]))
    first = tensors[0]
    joined = Tensor(first.variables, first.type, 0, shape, row_major(shape), pieces)
    return joined if dim == 0 else joined.dim_roll(0, dim)


def concat_rows(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along their last dimension, whose elements lie in the order of the result.

    `concat` takes this dimension first: that is a run for each element, here a row is a few runs.
    """
    rows = all(t.shape[-1] == 1 or t.strides[-1] in (0, 1) for t in tensors)
    if len(tensors) == 1 or not rows:
        return concat(tensors, tensors[0].rank - 1)
    _check_concat(list(tensors), tensors[0].rank - 1)
    first, widths = tensors[0], np.array([t.shape[-1] for t in tensors])
    n_rows = math.prod(first.shape[:-1])
    ends = np.cumsum(n_rows * widths)
    pieces = Pieces(concat_runs([t.runs() for t in tensors]))
    begin = (ends - n_rows * widths)[None] + np.arange(n_rows)[:, None] * widths[None]
    runs, _ = pieces.lookup_intervals(begin.ravel(), (begin + widths[None]).ravel())
    shape = (*first.shape[:-1], int(widths.sum()))
    return Tensor(first.variables, first.type, 0, shape, row_major(shape), Pieces(runs))


def check_is_tensor(value: object, what: str) -> Tensor:
    """An argument that is a tensor; else raise a TypeMismatch, with the user's line."""
    if not isinstance(value, Tensor):
        raise TypeMismatch(
            f"{what} takes a Tensor, got {type(value).__name__}.",
            source=user_source(),
            hint="pass a variable of the graph, or a view of one",
        )
    return value


def append(tensor: Tensor, part: Tensor, dim: int = 0) -> Tensor:
    """`tensor` with `part`, of one rank less, added at the end of a dimension."""
    check_is_tensor(part, "append")
    return concat([tensor, part.expand([dim])], dim)


__all__ = [
    "Interval",
    "Tensor",
    "append",
    "check_is_tensor",
    "concat",
    "concat_rows",
    "variable_tensor",
]


def _check_concat(tensors: list[Tensor], dim: int) -> None:
    """Raise unless tensors differ in one dimension at most."""
    first = tensors[0]
    if not 0 <= dim < first.rank:
        raise no_dimension(first.shape, dim)
    for t in tensors[1:]:
        if t.variables is not first.variables:
            raise TensorCreationError(
                "cannot concat tensors of different graphs.",
                source=user_source(),
                hint="use one graph",
            )
        if t.type != first.type:
            raise TypeMismatch(
                f"cannot concat {first.type} and {t.type}.",
                source=user_source(),
                hint="cast one of them first",
            )
        others = [d for d in range(first.rank) if d != dim]
        if t.rank != first.rank or any(t.shape[d] != first.shape[d] for d in others):
            raise TensorCreationError(
                f"cannot concat {list(first.shape)} and {list(t.shape)} along dimension {dim}.",
                source=user_source(),
                hint="all other dimensions must agree",
            )
