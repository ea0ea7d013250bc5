"""The vertices of products: partial sums on one tile, and adding up partial sums of several."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tremula.base.types import Type, float32, int32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.python.machine import multiply_accumulate
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.product.methods import METHODS, Count, Work, work_cycles
from tremula.poplibs.poplin.product.vertex_memory import field_data_bytes, instance_bytes

# One item of a worklist: where rows of out, left and right start; rows; inner length; is zeroed.
ITEM = 6
WORK_FIELDS = Work._fields


def work_of(v: CostView) -> Work:
    """What vertices multiply, by their state."""
    return Work(*(v.state[name].astype(np.int64) for name in WORK_FIELDS))


def _instance_bytes(method: str, v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return instance_bytes(method, work_of(v))


def _convert(source: np.ndarray, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = source[i]


def _product_on_host(converts_left: bool) -> Callable[[Any], None]:
    """The `compute_on_host` of a product: all items, with what is on the left in floats."""

    def compute_on_host(self: Any) -> None:  # noqa: ANN401
        # What is spread over many columns becomes a float once, which changes no bit.
        if converts_left:
            left = np.empty(len(self.left), dtype=float32)
            _convert(self.left, left)
        else:
            left = self.left
        n_cols = self.n_cols
        for item in range(self.first_item[0], self.first_item[len(self.first_item) - 1]):
            at = item * ITEM
            out_at, n_rows = self.items[at], self.items[at + 3]
            if self.items[at + 5] != 0:
                for j in range(n_rows * n_cols):
                    self.out[out_at + j] = 0
            multiply_accumulate(
                self.out, out_at, self.out_stride,
                left, self.items[at + 1], self.left_stride, self.left_step,
                self.right, self.items[at + 2], self.right_stride,
                n_rows, self.items[at + 4], n_cols,
            )  # fmt: skip

    return compute_on_host


@family
def conv_partial(method: str, inputs: Type, partials: Type) -> type:
    """A tile's share of a product, by one of METHODS."""
    entry = METHODS[method]

    class ConvPartial(MultiVertex):
        """Every item multiplies rows of left by a matrix of right, and adds to rows of out."""

        name = f"poplin::{entry.vertex}<{inputs},{partials}>"
        provenance = entry.provenance
        matrix_types = (inputs, partials) if entry.is_on_matrix_unit else None
        left: Input[Vector[inputs]]  # type: ignore[valid-type]
        right: Input[Vector[inputs]]  # type: ignore[valid-type]
        out: Output[Vector[partials]]  # type: ignore[valid-type]
        items: Vector[int32]  # type: ignore[valid-type]
        first_item: Vector[int32]  # type: ignore[valid-type]
        out_stride: int32  # type: ignore[valid-type]
        left_stride: int32  # type: ignore[valid-type]
        left_step: int32  # type: ignore[valid-type]
        right_stride: int32  # type: ignore[valid-type]
        n_cols: int32  # type: ignore[valid-type]
        n_groups: int32  # type: ignore[valid-type]
        n_positions: int32  # type: ignore[valid-type]
        n_rows: int32  # type: ignore[valid-type]
        n_in: int32  # type: ignore[valid-type]
        n_out: int32  # type: ignore[valid-type]
        n_taps: int32  # type: ignore[valid-type]
        n_gathered: int32  # type: ignore[valid-type]
        n_outputs: int32  # type: ignore[valid-type]

        def compute(self: Any, worker_id: int) -> None:
            n_cols = self.n_cols
            for item in range(self.first_item[worker_id], self.first_item[worker_id + 1]):
                at = item * ITEM
                out_at, n_rows = self.items[at], self.items[at + 3]
                if self.items[at + 5] != 0:
                    for j in range(n_rows * n_cols):
                        self.out[out_at + j] = 0
                multiply_accumulate(
                    self.out, out_at, self.out_stride,
                    self.left, self.items[at + 1], self.left_stride, self.left_step,
                    self.right, self.items[at + 2], self.right_stride,
                    n_rows, self.items[at + 4], n_cols,
                )  # fmt: skip

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return work_cycles(method, work_of(v), chip, inputs, partials)

        @staticmethod
        def field_data_bytes(v: CostView, chip: Chip) -> np.ndarray:
            return field_data_bytes(method, work_of(v), chip, inputs, partials)

        compute_on_host = _product_on_host(entry.is_on_matrix_unit and inputs is not float32)
        instance_bytes = staticmethod(partial(_instance_bytes, method))

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * _n_products(v) * v.state["n_cols"].astype(np.int64)

    return ConvPartial


def _n_products(v: CostView) -> np.ndarray:
    """int64[n]: rows times inner length of all items, which leave out what falls on padding."""
    items = v.state["items"].reshape(-1, ITEM).astype(np.int64)
    products = np.append(0, np.cumsum(items[:, 3] * items[:, 4]))
    ends = np.cumsum(v.sizes["items"]) // ITEM
    return products[ends] - products[ends - v.sizes["items"] // ITEM]


# PopLibs' ReduceAdd: scaled pointers to the result and to the pointers to partial results, and how
# many there are of both.
REDUCE_ADD_BYTES = 4 * 2
ONE_PTR = "ONE_PTR"  # of each vector of partial results


def _reduce_instance_bytes(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return np.full(len(v.sizes["out"]), REDUCE_ADD_BYTES)


@family
def conv_reduce(partials: Type, result: Type) -> type:  # noqa: C901 - two types, two forms
    """Adds up partial results of several tiles, in order."""
    sums_in_out = result is float32

    class ConvReduce(MultiVertex):
        name = f"poplin::ReduceAdd<{result},{partials}>"
        provenance = "published"
        parts: Vector[Input[Vector[partials, ONE_PTR]]]  # type: ignore[valid-type]
        out: Output[Vector[result]]  # type: ignore[valid-type]

        def compute(self: Any, worker_id: int) -> None:
            n = len(self.out)
            begin = n * worker_id // self.n_workers
            end = n * (worker_id + 1) // self.n_workers
            n_parts = len(self.parts)
            # Sums stay in float32: they go to `out` on the way only if that is float32.
            if sums_in_out:
                for i in range(begin, end):
                    self.out[i] = self.parts[0][i]
                for j in range(1, n_parts):
                    for i in range(begin, end):
                        self.out[i] += self.parts[j][i]
            else:
                for i in range(begin, end):
                    total = float32(self.parts[0][i])
                    for j in range(1, n_parts):
                        total += float32(self.parts[j][i])  # pyright: ignore[reportOperatorIssue]
                    self.out[i] = total

        def compute_on_host(self: Any) -> None:
            out, first, n_parts = self.out, self.parts[0], len(self.parts)
            if sums_in_out:
                for i in range(len(out)):
                    out[i] = first[i]
                for j in range(1, n_parts):
                    part = self.parts[j]
                    for i in range(len(out)):
                        out[i] += part[i]
            else:
                for i in range(len(out)):
                    total = float32(first[i])
                    for j in range(1, n_parts):
                        total += float32(self.parts[j][i])  # pyright: ignore[reportOperatorIssue]
                    out[i] = total

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return reduce_cycles(v.sizes["out"], v.n_subs["parts"], chip, partials)

        instance_bytes = staticmethod(_reduce_instance_bytes)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return (v.n_subs["parts"] - 1) * v.sizes["out"]

    return ConvReduce


# PopLibs' estimators of ReduceAdd and Cast: supervisor cycles, and slots of a worker before its
# vectors. A vector takes two slots for each partial result and eight more, or two if it is cast.
ADD_LAUNCH, ADD_START = 33, 20
ADD_PARTIAL, ADD_VECTOR = 2, 8
CAST_LAUNCH, CAST_START = 12, 37
# Its estimator of 2019, for the GC2: all is a worker's, and three slots for each partial result.
EARLY_START, EARLY_PARTIAL, EARLY_VECTOR = 32, 3, 6


def reduce_cycles(n_outputs: Count, n_partials: Count, chip: Chip, partials: Type) -> np.ndarray:
    """Adding up partial results: n_outputs from n_partials each; of one it is a cast."""
    width = 2 * chip.vector_width(partials)
    vectors = ceil_div(ceil_div(n_outputs, width), chip.n_workers)
    adding = _adding_cycles(vectors, np.asarray(n_partials), chip)
    casting = CAST_LAUNCH + chip.n_workers * (CAST_START + vectors * 2)
    return np.where(np.asarray(n_partials) == 1, casting, adding)


def _adding_cycles(vectors: np.ndarray, n_partials: np.ndarray, chip: Chip) -> np.ndarray:
    if chip.arch == "ipu1":
        worker = EARLY_START + vectors * (EARLY_PARTIAL * n_partials + EARLY_VECTOR)
        return chip.n_workers * worker
    worker = ADD_START + vectors * (ADD_PARTIAL * n_partials + ADD_VECTOR)
    return ADD_LAUNCH + chip.n_workers * worker
