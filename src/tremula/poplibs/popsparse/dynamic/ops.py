"""Dynamic products of values in the order of a CSR matrix, and their entries in the registry.

The pattern is given when building and its words are a constant: what a test, a forecast or a model
with one pattern wants. A program whose pattern changes writes the words, see `Partitioner`.
`n_non_zeros` is the number that is planned for; all, unless it is given.
"""

from collections.abc import Iterator
from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_SHORT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops import zero
from tremula.poplibs.popsparse import references
from tremula.poplibs.popsparse.dynamic import codelets, embedding_codelets
from tremula.poplibs.popsparse.dynamic.buckets import SparseTensor
from tremula.poplibs.popsparse.dynamic.embedding import embedding_slice, embedding_update_add
from tremula.poplibs.popsparse.dynamic.layer import (
    create_fully_connected_weights,
    fully_connected_fwd,
    fully_connected_grad_a,
    fully_connected_sparse_grad_w,
)
from tremula.poplibs.popsparse.dynamic.params import DynamicOptions, FullyConnectedParams
from tremula.poplibs.popsparse.dynamic.partitioner import Partitioner
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import CSRMatrix
from tremula.poplibs.popsparse.references import random_values
from tremula.poplibs.popsparse.static import codelets as static_codelets
from tremula.poplibs.popsparse.static.operands import pieces_of
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

_PASSES: DynamicOptions = {"do_grad_a_pass": True, "do_grad_w_pass": True}


class _FixedPattern:
    """A dynamic operand of one pattern, and where its values lie."""

    def __init__(
        self, graph: Graph, type: Type, pattern: CSRMatrix, n: int, n_non_zeros: int | None,
        name: str, **options: Unpack[DynamicOptions],
    ) -> None:  # fmt: skip
        n_rows, n_columns = pattern.num_rows, pattern.num_columns
        capacity = n_rows * n_columns if n_non_zeros is None else n_non_zeros
        params = FullyConnectedParams.create_with_num_non_zero_values(
            capacity, n, n_columns, n_rows, block=pattern.block[0]
        )
        partitioner = Partitioner(params, type, graph.target, **options)
        data = partitioner.create_sparsity_data(pattern)
        made = create_fully_connected_weights(graph, type, params, f"{name}/weights", **options)
        words = graph.add_constant(
            UNSIGNED_SHORT, [len(data.meta_info)], data.meta_info, f"{name}/words"
        )
        graph.set_tile_mapping(words, graph.get_tile_mapping(made.meta_info))
        self.weights = SparseTensor(words, made.nz_values, made.plan)
        order = partitioner.order_of(data, pattern)
        self.place = np.empty(len(pattern.nz_values), np.int64)
        self.place[order[order >= 0]] = np.flatnonzero(order >= 0)

    def in_row_order(self, values: Tensor) -> Tensor:
        """A view of values on the device in the order of the CSR matrix."""
        ones = np.ones_like(self.place)
        return pieces_of(values, Runs(values.offset + self.place, ones, ones))

    def write(self, graph: Graph, values: Tensor, sequence: Sequence, name: str) -> None:
        """Copy values in the order of the CSR matrix to their buckets."""
        if values.shape != self.place.shape:
            raise SparsityError(
                f"a pattern of {len(self.place)} values got a tensor of {list(values.shape)}.",
                source=user_source(),
                hint="give the values as one dimension, in the order of the CSR matrix",
            )
        zero(graph, self.weights.nz_values, sequence, f"{name}/zero")
        if values.n_elems:
            sequence.add(Copy(values, self.in_row_order(self.weights.nz_values)))


def mat_mul(
    graph: Graph, values: Tensor, dense: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    n_non_zeros: int | None = None, name: str = "sparseMatMul", **options: Unpack[DynamicOptions],
) -> Tensor:  # fmt: skip
    """The matrix with a pattern and these values, by a dense [k, n]: a new tensor [m, n]."""
    fixed = _FixedPattern(
        graph, values.type, pattern, _n_columns(dense), n_non_zeros, name, **options
    )
    fixed.write(graph, values, sequence, name)
    result = fully_connected_fwd(graph, fixed.weights, dense.transpose(), sequence, name)
    return result.transpose()


def mat_mul_dense_gradient(
    graph: Graph, values: Tensor, gradient: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    n_non_zeros: int | None = None, name: str = "denseGradient", **options: Unpack[DynamicOptions],
) -> Tensor:  # fmt: skip
    """The gradient [k, n] of `mat_mul`'s dense operand, from its result's [m, n]."""
    passes: DynamicOptions = {"do_grad_a_pass": True, **options}
    fixed = _FixedPattern(
        graph, values.type, pattern, _n_columns(gradient), n_non_zeros, name, **passes
    )
    fixed.write(graph, values, sequence, name)
    result = fully_connected_grad_a(graph, fixed.weights, gradient.transpose(), sequence, name)
    return result.transpose()


def mat_mul_values_gradient(
    graph: Graph, dense: Tensor, gradient: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    n_non_zeros: int | None = None, name: str = "valuesGradient", **options: Unpack[DynamicOptions],
) -> Tensor:  # fmt: skip
    """The gradient of `mat_mul`'s values, in CSR order, from its result's [m, n]."""
    passes: DynamicOptions = {**_PASSES, **options}
    fixed = _FixedPattern(
        graph, dense.type, pattern, _n_columns(dense), n_non_zeros, name, **passes
    )
    result = fully_connected_sparse_grad_w(
        graph, fixed.weights, gradient.transpose(), dense.transpose(), sequence, name
    )
    return fixed.in_row_order(result)


def slice_rows(
    graph: Graph, values: Tensor, indices: Tensor, sequence: Sequence, *, pattern: CSRMatrix,
    n_non_zeros: int | None = None, name: str = "sliceRows", **options: Unpack[DynamicOptions],
) -> Tensor:  # fmt: skip
    """Rows of the matrix with a pattern and these values, dense: [number of indices, k]."""
    fixed = _FixedPattern(graph, values.type, pattern, _TABLE_BATCH, n_non_zeros, name, **options)
    fixed.write(graph, values, sequence, name)
    return embedding_slice(graph, fixed.weights, indices, sequence, name)


def update_rows(
    graph: Graph, values: Tensor, slices: Tensor, indices: Tensor, sequence: Sequence, *,
    pattern: CSRMatrix, scale: float = 1.0, n_non_zeros: int | None = None,
    name: str = "updateRows", **options: Unpack[DynamicOptions],
) -> Tensor:  # fmt: skip
    """New values: scale · slices added to rows of the matrix, where the pattern has values."""
    passes: DynamicOptions = {**_PASSES, **options}
    fixed = _FixedPattern(graph, values.type, pattern, _TABLE_BATCH, n_non_zeros, name, **passes)
    fixed.write(graph, values, sequence, name)
    embedding_update_add(
        graph, fixed.weights, slices, indices, sequence, scale=scale, name=f"{name}/add"
    )
    return fixed.in_row_order(fixed.weights.nz_values)


_TABLE_BATCH = 4  # tables are planned as layers; the least batch that floats and halves have


def _n_columns(dense: Tensor) -> int:
    if dense.rank != 2:
        raise SparsityError(
            f"a dynamic sparse product got a dense operand of {list(dense.shape)}, expected "
            "[rows, columns].",
            source=user_source(),
            hint="reshape it to two dimensions",
        )
    return dense.shape[1]


# -- registry --------------------------------------------------------------------------------------

# (m, k, n, side, density): elements and blocks, empty, one full row, full; below -1, the first
# quarter of the rows is full and as many are planned for, so that they spill.
_SAMPLES = (
    (12, 20, 8, 1, 0.3), (8, 16, 12, 4, 0.5), (32, 24, 5, 8, 0.4), (48, 32, 16, 16, 0.4),
    (6, 10, 4, 1, 0.0), (5, 40, 20, 1, -1.0), (16, 32, 4, 16, 1.0), (32, 40, 8, 1, -2.0),
    (64, 64, 8, 8, -2.0),
)  # fmt: skip
_Options = dict[str, object]


def _patterns(rng: np.random.Generator) -> Iterator[tuple[CSRMatrix, int, _Options]]:
    """Patterns, columns of dense operands, and the options of a call."""
    for m, k, n, side, density in _SAMPLES:
        present = rng.random((m // side, k // side)) < density
        if density == -1:
            present[len(present) // 2] = True
        elif density < -1:
            present[: len(present) // 4] = True
        whole = np.kron(present, np.ones((side, side), np.float32))
        pattern = CSRMatrix.from_dense(whole, (side, side))
        spills = {"n_non_zeros": len(pattern.nz_values)} if density < -1 else {}
        yield pattern, n, {"pattern": pattern, **spills}


def _forward_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for pattern, n, options in _patterns(rng):
        values = random_values(rng, element, len(pattern.nz_values))
        yield Sample((values, random_values(rng, element, pattern.num_columns, n)), options)


def _dense_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for pattern, n, options in _patterns(rng):
        values = random_values(rng, element, len(pattern.nz_values))
        yield Sample((values, random_values(rng, element, pattern.num_rows, n)), options)


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for pattern, n, options in _patterns(rng):
        dense = random_values(rng, element, pattern.num_columns, n)
        yield Sample((dense, random_values(rng, element, pattern.num_rows, n)), options)


def _slice_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for pattern, n, options in _patterns(rng):
        values = random_values(rng, element, len(pattern.nz_values))
        rows = rng.integers(0, pattern.num_rows, 2 * n + 1, np.uint32)
        yield Sample((values, rows), options)


def _update_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for pattern, n, options in _patterns(rng):
        values = random_values(rng, element, len(pattern.nz_values))
        rows = rng.integers(0, pattern.num_rows, n, np.uint32)  # some of them twice
        slices = random_values(rng, element, n, pattern.num_columns)
        yield Sample((values, slices, rows), options)


def _errors() -> tuple[ErrorCase, ...]:
    pattern = CSRMatrix.from_dense(np.ones((4, 8), np.float32), (4, 4))
    ones = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    return (
        ErrorCase(Sample((ones(32), ones(9, 4)), {"pattern": pattern}), "expected", SparsityError),
        ErrorCase(
            Sample((ones(31), ones(8, 4)), {"pattern": pattern}),
            "32 values got a tensor of [31]",
            SparsityError,
        ),
    )


_TOLERANCE = {"FLOAT": 2e-5, "HALF": 5e-3}
_PRODUCTS = (codelets.element_product, codelets.block_product, static_codelets.reduce_add)

for _name, _function, _about, _samples, _reference, _families, _wrong in (
    (
        "mat_mul", mat_mul, "a sparse matrix whose pattern is data, by a dense one",
        _forward_samples, references.product, _PRODUCTS, _errors(),
    ),
    (
        "mat_mul_dense_gradient", mat_mul_dense_gradient,
        "the gradient of the dense operand of `dynamic.mat_mul`", _dense_samples,
        references.dense_gradient,
        (*_PRODUCTS, static_codelets.transpose_blocks), (),
    ),
    (
        "mat_mul_values_gradient", mat_mul_values_gradient,
        "the gradient of the values of `dynamic.mat_mul`, at the pattern alone",
        _gradient_samples, references.values_gradient, (codelets.values_gradient,), (),
    ),
    (
        "slice_rows", slice_rows, "rows of a sparse table, dense", _slice_samples,
        references.sliced_rows,
        (embedding_codelets.take_rows,), (),
    ),
    (
        "update_rows", update_rows, "rows added to a sparse table, where it has values",
        _update_samples, references.updated_rows, (embedding_codelets.add_rows,), (),
    ),
):  # fmt: skip
    register(
        Op(
            name=f"popsparse.dynamic.{_name}",
            function=_function,
            about=_about,
            types=(FLOAT, HALF),
            samples=_samples,
            reference=_reference,
            codelets=_families,
            tolerance=_TOLERANCE,
            errors=_wrong,
        )
    )
