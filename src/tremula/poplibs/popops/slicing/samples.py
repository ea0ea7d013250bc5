"""Registry entries of multi-slices, multi-updates, gather and scatter: samples and references."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_CHAR, UNSIGNED_INT, Type
from tremula.poplibs.popops.slicing.codelets import (
    check_indices_codelet,
    multi_slice_codelet,
    row_part_codelet,
)
from tremula.poplibs.popops.slicing.gather_scatter import gather, scatter
from tremula.poplibs.popops.slicing.layout import slice_shape
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.poplibs.popops.slicing.multi_update import (
    multi_update,
    multi_update_add,
    multi_update_max,
    multi_update_mul,
)
from tremula.poplibs.popops.slicing.update_codelets import (
    COMBINE,
    NUMBERS,
    apply_updates_codelet,
    join_partials_codelet,
    multi_update_codelet,
    scaled_update_codelet,
)
from tremula.poplibs.popops.slicing.window_rows import window_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

# -- multi-slice -----------------------------------------------------------------------------------

_SLICE_TYPES = (FLOAT, HALF, INT, UNSIGNED_INT, UNSIGNED_CHAR, BOOL)


def _slice_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(0, 2 if type == BOOL else 100, shape).astype(type.dtype)

    for n_rows, n_columns, n in ((9, 5, 13), (1, 1, 1), (30, 8, 7), (4, 3, 0)):
        indices = rng.integers(0, n_rows, (n, 1)).astype(np.uint32)
        yield Sample((numbers(n_rows, n_columns), indices))
    yield Sample((numbers(4, 3), np.array([3, 0, 9], np.uint32)))  # 9 is out of range
    yield Sample((numbers(3, 7), rng.integers(0, 7, (5, 1)).astype(np.int32)), {"dims": (1,)})
    pairs = np.stack([rng.integers(0, 3, 6), rng.integers(0, 5, 6)], axis=1).astype(np.uint32)
    yield Sample((numbers(4, 3, 7), pairs), {"dims": (0, 2), "sizes": (2, 3)})


def _slice_reference(
    table: np.ndarray,
    indices: np.ndarray,
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
) -> np.ndarray:
    offsets = indices.reshape(len(indices), len(dims)).astype(np.int64)
    result = np.zeros((len(offsets), *slice_shape(table.shape, tuple(dims), tuple(sizes))))
    for index, offset in enumerate(offsets):
        window = [slice(None)] * table.ndim
        for d, size, first in zip(dims, sizes, offset.tolist(), strict=True):
            window[d] = slice(first, first + size)
        matches = table[tuple(window)]
        result[index] = matches if matches.size else 0
    return result.astype(table.dtype)


_TABLE, _ROWS = np.zeros((4, 3), np.float32), np.zeros((5, 1), np.uint32)

register(
    Op(
        name="popops.multi_slice",
        function=multi_slice,
        about="Many rows of a table at once, as an embedding does.",
        types=_SLICE_TYPES,
        samples=_slice_samples,
        reference=_slice_reference,
        codelets=(
            multi_slice_codelet, row_part_codelet, check_indices_codelet,
            window_codelet,
        ),
        errors=(
            ErrorCase(Sample((_TABLE, np.zeros((5, 2), np.uint32))), "expected [n, 1]"),
            ErrorCase(Sample((_TABLE, np.zeros(5, np.float32))), "got indices of type float"),
            ErrorCase(Sample((_TABLE, _ROWS), {"sizes": (1, 1)}), "1 dims and 2 sizes"),
        ),
    )
)  # fmt: skip


# -- multi-update ----------------------------------------------------------------------------------


def _update_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for n_rows, n_columns, n in ((9, 5, 13), (1, 1, 1), (30, 8, 7), (4, 3, 0)):
        indices = rng.integers(0, n_rows, (n, 1)).astype(np.uint32)
        yield Sample((*_numbers(type, rng, (n_rows, n_columns), (n, 1, n_columns)), indices))
    outside = np.array([3, 0, 9, 3], np.uint32)  # 9 is out of range
    yield Sample((*_numbers(type, rng, (4, 3), (4, 1, 3)), outside))
    columns = rng.integers(0, 7, (5, 1)).astype(np.int32)
    yield Sample((*_numbers(type, rng, (3, 7), (5, 3, 1)), columns), {"dims": (1,)})


def _numbers(type: Type, rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.integers(1, 4, shape).astype(type.dtype) for shape in shapes]


def _scaled_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _update_samples(type, rng):
        yield sample
        yield Sample(sample.inputs, {**sample.options, "scale": 2})


def _update_reference_of(operation: str) -> Callable[..., np.ndarray]:
    def reference(
        table: np.ndarray,
        updates: np.ndarray,
        indices: np.ndarray,
        *,
        dims: Sequence[int] = (0,),
        scale: float = 1,
    ) -> np.ndarray:
        result = np.moveaxis(table.copy(), dims[0], 0)
        new = np.moveaxis(updates, dims[0] + 1, 1)[:, 0] * np.asarray(scale, table.dtype)
        for index, row in enumerate(indices.reshape(-1).tolist()):
            if row >= len(result):
                continue
            if operation == "set":
                result[row] = new[index]
            elif operation == "add":
                result[row] += new[index]
            elif operation == "max":
                result[row] = np.maximum(result[row], new[index])
            else:
                result[row] *= new[index]
        return np.moveaxis(result, 0, dims[0])

    return reference


_ERRORS = (
    ErrorCase(Sample((_TABLE, np.zeros((5, 3), np.float32), _ROWS)), "expected float [5, 1, 3]"),
    ErrorCase(
        Sample((_TABLE, np.zeros((5, 1, 3), np.int32), _ROWS)), "got updates of int [5, 1, 3]"
    ),
    ErrorCase(
        Sample((_TABLE, np.zeros((5, 1, 1), np.float32), np.zeros((5, 2), np.uint32)),
               {"dims": (0, 1)}),
        "expected one dimension",
    ),
)  # fmt: skip
_BOOL_TABLE = (np.zeros((4, 3), bool), np.zeros((5, 1, 3), bool), _ROWS)

for _name, _function, _operation, _about in (
    ("multi_update", multi_update, "set", "Write many rows of a table at once."),
    ("multi_update_add", multi_update_add, "add", "Add rows, scaled, to many rows of a table."),
    ("multi_update_max", multi_update_max, "max", "Combine rows of a table by their maximum."),
    ("multi_update_mul", multi_update_mul, "mul", "Multiply many rows of a table by rows."),
):
    _unsupported = () if _operation == "set" else (
        ErrorCase(Sample(_BOOL_TABLE), f"{_name} does not support bool"),
    )  # fmt: skip
    register(
        Op(
            name=f"popops.{_name}",
            function=_function,
            about=_about,
            types=NUMBERS,
            samples=_scaled_samples if _operation == "add" else _update_samples,
            reference=_update_reference_of(_operation),
            codelets=(
                multi_update_codelet, scaled_update_codelet,
                join_partials_codelet, apply_updates_codelet,
            ),
            errors=(*_ERRORS, *_unsupported),
            tolerance={HALF.name: 1e-3},
            is_in_place=True,
        )
    )  # fmt: skip


# -- gather and scatter ----------------------------------------------------------------------------

_GATHERS = (  # operand, indices, options
    (
        (9, 5), (6, 1),
        {"index_vector_dim": 1, "offset_dims": (1,), "slice_sizes": (1, 5),
         "collapsed_slice_dims": (0,), "start_index_map": (0,)},
    ),
    (
        (9, 5), (6,),
        {"index_vector_dim": 1, "offset_dims": (1,), "slice_sizes": (1, 3),
         "collapsed_slice_dims": (0,), "start_index_map": (0,)},
    ),
    (
        (4, 6, 3), (2, 3, 2),
        {"index_vector_dim": 2, "offset_dims": (0, 3), "slice_sizes": (2, 1, 3),
         "collapsed_slice_dims": (1,), "start_index_map": (1, 0)},
    ),
    (
        (7,), (2, 4),
        {"index_vector_dim": 2, "offset_dims": (2,), "slice_sizes": (3,),
         "collapsed_slice_dims": (), "start_index_map": (0,)},
    ),
)  # fmt: skip
_SCATTERS = (  # operand, indices, updates, options
    (
        (9, 5), (6, 1), (6, 5),
        {"index_vector_dim": 1, "update_window_dims": (1,), "inserted_window_dims": (0,),
         "scatter_dims_to_operand_dims": (0,)},
    ),
    (
        (4, 6, 3), (5, 2), (5, 2, 3),
        {"index_vector_dim": 1, "update_window_dims": (1, 2), "inserted_window_dims": (1,),
         "scatter_dims_to_operand_dims": (1, 0)},
    ),
    (
        (8,), (3,), (3, 2),
        {"index_vector_dim": 1, "update_window_dims": (1,), "inserted_window_dims": (),
         "scatter_dims_to_operand_dims": (0,)},
    ),
)  # fmt: skip


def _gather_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, index_shape, options in _GATHERS:
        operand = rng.integers(0, 100, shape).astype(type.dtype)
        yield Sample((operand, rng.integers(-2, 9, index_shape).astype(np.int32)), options)


def _scatter_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, index_shape, update_shape, options in _SCATTERS:
        for combine in COMBINE:
            operand, updates = (
                rng.integers(1, 4, s).astype(type.dtype) for s in (shape, update_shape)
            )
            indices = rng.integers(0, 9, index_shape).astype(np.int32)
            yield Sample((operand, indices, updates), {**options, "combine": combine})


def _gather_reference(
    operand: np.ndarray,
    indices: np.ndarray,
    *,
    index_vector_dim: int,
    offset_dims: Sequence[int],
    slice_sizes: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
) -> np.ndarray:
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, index_vector_dim, -1)
    batch = vectors.shape[:-1]
    windows = []
    for vector in vectors.reshape(-1, vectors.shape[-1]):
        window = [slice(0, size) for size in slice_sizes]
        for k, d in enumerate(start_index_map):
            first = min(max(int(vector[k]), 0), operand.shape[d] - slice_sizes[d])
            window[d] = slice(first, first + slice_sizes[d])
        windows.append(operand[tuple(window)].squeeze(tuple(collapsed_slice_dims)))
    stacked = np.stack(windows).reshape(*batch, *windows[0].shape)
    behind = range(len(batch), stacked.ndim)
    return np.moveaxis(stacked, list(behind), sorted(offset_dims))


def _scatter_reference(
    operand: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    *,
    index_vector_dim: int,
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    combine: str,
) -> np.ndarray:
    result = operand.copy()
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, index_vector_dim, -1).reshape(
        -1, len(scatter_dims_to_operand_dims)
    )
    batch = [d for d in range(updates.ndim) if d not in update_window_dims]
    last = updates.transpose([*batch, *sorted(update_window_dims)])
    last = last.reshape(len(vectors), *last.shape[len(batch) :])
    for vector, window in zip(vectors, np.expand_dims(last, [1 + d for d in inserted_window_dims]),
                              strict=True):  # fmt: skip
        corner = np.zeros(operand.ndim, np.int64)
        corner[list(scatter_dims_to_operand_dims)] = vector
        place = tuple(slice(a, a + n) for a, n in zip(corner, window.shape, strict=True))
        if (corner < 0).any() or (corner + window.shape > operand.shape).any():
            continue
        old = result[place]
        new = {"set": window, "add": old + window, "max": np.maximum(old, window)}
        result[place] = new.get(combine, old * window)
    return result


register(
    Op(
        name="popops.gather",
        function=gather,
        about="Windows of a tensor at places given by index vectors, as XLA defines it.",
        types=NUMBERS,
        samples=_gather_samples,
        reference=_gather_reference,
        codelets=(multi_slice_codelet, window_codelet),
        errors=(
            ErrorCase(
                Sample((np.zeros((9, 5), np.float32), np.zeros((6, 2), np.int32)), _GATHERS[0][2]),
                "expected 1 elements there",
            ),
            ErrorCase(
                Sample(
                    (np.zeros((9, 5), np.float32), np.zeros((6, 1), np.int32)),
                    {**_GATHERS[0][2], "slice_sizes": (1, 7)},
                ),
                "windows of [1, 7] in shape [9, 5]",
            ),
        ),
    )
)
register(
    Op(
        name="popops.scatter",
        function=scatter,
        about="Windows set in, or combined into, a tensor at places given by index vectors.",
        types=NUMBERS,
        samples=_scatter_samples,
        reference=_scatter_reference,
        codelets=(multi_update_codelet, window_codelet),
        errors=(
            ErrorCase(
                Sample(
                    (
                        np.zeros((9, 5), np.float32),
                        np.zeros((6, 1), np.int32),
                        np.zeros((6, 5), np.float32),
                    ),
                    {**_SCATTERS[0][3], "combine": "ad"},
                ),
                "did you mean 'add'",
            ),
        ),
        tolerance={HALF.name: 1e-3},
        is_in_place=True,
    )
)
