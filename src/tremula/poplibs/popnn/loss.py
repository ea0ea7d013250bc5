"""Losses of outputs [batch, classes] against labels [batch], with their gradients; accuracy."""

import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type, float32, int64, uint32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs import popops
from tremula.poplibs.families import family
from tremula.poplibs.popnn.checks import check_float, check_labels
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import Cast, _1, _2
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.popops.sorting.arg_max import arg_max, best_vertex, extreme_vertex
from tremula.poplibs.popops.sorting.codelets import merge_vertex, sort_vertex
from tremula.poplibs.popops.sorting.top_k import top_k_with_permutation
from tremula.poplibs.poputil import clone_in_order, split_between_workers, tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

# -- a matrix cut where tiles, workers and rows end ------------------------------------------------


class RowPieces(NamedTuple):
    """Intervals [begin, end) of a flattened matrix, sorted by tile."""

    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    row: np.ndarray
    first_column: np.ndarray


def row_pieces(graph: Graph, matrix: Tensor) -> RowPieces:
    """Pieces of a matrix where its elements are, enough of them for all workers of a tile."""
    n_cols = matrix.shape[1]
    regions = tile_regions(graph, matrix.flatten())
    grain = graph.target.vector_width(matrix.type)
    work = split_between_workers(regions, graph.target.n_worker_contexts, grain)
    tile = work.tile_of_slice
    first_row, last_row = work.begin // n_cols, (work.end - 1) // n_cols
    owner, within = expand(last_row - first_row + 1)
    row = first_row[owner] + within
    begin = np.maximum(work.begin[owner], row * n_cols)
    end = np.minimum(work.end[owner], (row + 1) * n_cols)
    return RowPieces(tile[owner], begin, end, row, begin - row * n_cols)


# -- losses ----------------------------------------------------------------------------------------
# One vertex transforms a piece of a row: it writes the gradient and the terms of the loss, which
# are then summed per row. Labels equal to MASKED_LABEL_CODE are ignored: no loss, no gradient.


# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

MASKED_LABEL_CODE = 0xFFFFFFFF
# Published: the loss vertex has 25 slots, and 9 per float or per pair of halves.
START_SLOTS, STEP_SLOTS = 25, 9
# Probabilities are clamped to the type's smallest before their logarithm is taken.
SMALLEST = {"FLOAT": 2.0**-126, "HALF": 2.0**-24}


class LossType(Enum):
    """The losses there are."""

    SUM_SQUARED_LOSS = "SUM_SQUARED_LOSS"
    CROSS_ENTROPY_LOSS = "CROSS_ENTROPY_LOSS"


def calc_loss(
    graph: Graph, outputs: Tensor, labels: Tensor, sequence: Sequence, name: str = "loss",
    *, kind: LossType | str, deltas_scale: Tensor | float = 1.0,
    output_scaling: Tensor | float = 1.0, has_num_correct: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(loss [batch], deltas [batch, classes]); with `has_num_correct` also how many rows are right.

    SUM_SQUARED_LOSS is ½ Σ (output - expected)², its deltas are output - expected; expected is 1 at
    the label and 0 elsewhere. CROSS_ENTROPY_LOSS takes probabilities, from softmax, and is -log of
    the one at the label; its deltas are the gradient of what softmax was given. Outputs that are
    `output_scaling` times too large are scaled down first; deltas are scaled by `deltas_scale`.
    """
    kind = as_loss_type(kind)
    check_float("calc_loss", outputs)
    check_labels("calc_loss", outputs, labels)
    deltas = clone_in_order(graph, outputs, f"{name}/deltas")
    terms = clone_in_order(graph, outputs, f"{name}/terms")
    scales = {
        "deltas_scale": _checked_scale(deltas_scale),
        "output_scaling": _checked_scale(output_scaling),
    }
    tensors = {"outputs": outputs, "deltas": deltas, "terms": terms}
    _transform(graph, kind, tensors, labels, scales, sequence, name)
    loss = popops.reduce(graph, terms, [1], "ADD", sequence, f"{name}/sum")
    if not has_num_correct:
        return loss, deltas
    return loss, deltas, calc_accuracy(graph, outputs, labels, sequence, f"{name}/num_correct")


def as_loss_type(kind: LossType | str) -> LossType:
    """A loss or its name."""
    if isinstance(kind, LossType):
        return kind
    if kind not in LossType.__members__:
        raise PoplibsError(
            f"there is no loss {kind!r}.",
            source=user_source(),
            hint=suggest(str(kind), LossType.__members__),
        )
    return LossType[kind]


def _checked_scale(scale: Tensor | float) -> Tensor | float:
    if isinstance(scale, Tensor) and (scale.n_elems != 1 or scale.type is not FLOAT):
        raise PoplibsError(
            f"a scale of calc_loss must be a number or one float, got {scale.type} "
            f"{list(scale.shape)}.",
            source=user_source(),
            hint="index one element, or cast it",
        )
    return scale


def _transform(
    graph: Graph, kind: LossType, tensors: dict[str, Tensor], labels: Tensor,
    scales: dict[str, Tensor | float], sequence: Sequence, name: str,
) -> None:  # fmt: skip
    outputs = tensors["outputs"]
    if outputs.n_elems == 0:
        return
    pieces = row_pieces(graph, outputs)
    n_vertices = len(pieces.tile)
    fields: dict[str, object] = {
        field: Slices(tensor, pieces.begin, pieces.end) for field, tensor in tensors.items()
    }
    by_row = labels.flatten().reinterpret(UNSIGNED_INT)
    fields["label"] = Slices(by_row, pieces.row, pieces.row + 1)
    fields["first_class"] = pieces.first_column
    has_edges = any(isinstance(s, Tensor) for s in scales.values())
    zeros = np.zeros(n_vertices, np.int64)
    for field, scale in scales.items():
        if not has_edges:
            fields[field] = scale
            continue
        if not isinstance(scale, Tensor):
            scale = graph.add_constant(FLOAT, [1], scale, f"{name}/{field}", mapping=0)
        fields[field] = Slices(scale.flatten(), zeros, zeros + 1)
    codelet = loss_codelet(kind, outputs.type, has_edges)
    run_vertices(graph, codelet, fields, pieces.tile, sequence, name)


# -- codelets ----------------------------------------------------------------------------------


@family
def loss_codelet(kind: LossType, T: Type, has_edges: bool) -> type:  # noqa: N803
    """Gradient and loss terms of a piece of a row; scales are edges or numbers."""
    smallest = SMALLEST[T.name]
    is_squared = kind is LossType.SUM_SQUARED_LOSS
    Scale = Input[float32] if has_edges else float32  # noqa: N806

    class LossTransform(Vertex):
        name = f"popnn::Loss{'SumSquared' if is_squared else 'CrossEntropy'}Transform<{T}>" + (
            "Scaled" if has_edges else ""
        )
        provenance = "published"
        outputs: Input[Vector[T]]
        deltas: Output[Vector[T]]
        terms: Output[Vector[T]]
        label: Input[uint32]
        first_class: uint32
        deltas_scale: Scale
        output_scaling: Scale

        def compute(self: Any) -> None:
            outputs, deltas, terms = self.outputs, self.deltas, self.terms
            n = len(outputs)
            down = float32(1) / float32(self.output_scaling)
            scale = float32(self.deltas_scale)
            at = int64(self.label) - int64(self.first_class)
            if self.label == MASKED_LABEL_CODE:
                for i in range(n):
                    deltas[i] = T(0)
                    terms[i] = T(0)
                return
            for i in range(n):
                difference = float32(outputs[i]) * down
                deltas[i] = T(difference * scale)
                if is_squared:
                    terms[i] = T(float32(0.5) * difference * difference)
                else:
                    terms[i] = T(0)
            if at >= 0 and at < n:
                output = float32(outputs[at]) * down
                difference = output - float32(1)
                deltas[at] = T(difference * scale)
                if is_squared:
                    terms[at] = T(float32(0.5) * difference * difference)
                else:
                    terms[at] = T(-math.log(max(output, float32(smallest))))

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n_steps = -(-v.sizes["outputs"] // (2 if T is HALF else 1))
            return START_SLOTS + STEP_SLOTS * n_steps

        # Which piece has the label depends on data; its few extra operations are not counted.
        flops = flops_per_element("outputs", 4 if is_squared else 2)

    return LossTransform


# -- registry ----------------------------------------------------------------------------------


def _reference(
    outputs: np.ndarray, labels: np.ndarray, *, kind: str, deltas_scale: float = 1.0,
    output_scaling: float = 1.0, has_num_correct: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    wide = outputs.astype(np.float64) / output_scaling
    labels = labels.astype(np.uint32)
    n_classes = outputs.shape[1]
    expected = labels[:, None] == np.arange(n_classes, dtype=np.uint32)
    is_used = labels != MASKED_LABEL_CODE
    if kind == "SUM_SQUARED_LOSS":
        terms = 0.5 * (wide - expected) ** 2
    else:
        least = SMALLEST["HALF" if outputs.dtype == np.float16 else "FLOAT"]
        terms = np.where(expected, -np.log(np.maximum(wide, least)), 0.0)
    loss = (terms * is_used[:, None]).sum(axis=1).astype(outputs.dtype)
    deltas = ((wide - expected) * is_used[:, None] * deltas_scale).astype(outputs.dtype)
    if not has_num_correct:
        return loss, deltas
    n_correct = np.count_nonzero(outputs.argmax(axis=1) == labels)
    return loss, deltas, np.array(n_correct, np.uint32)


def _probabilities(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    powers = np.exp(rng.normal(0, 1, shape))
    return powers / powers.sum(axis=1, keepdims=True)


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, integer in (((9, 7), np.uint32), ((1, 1), np.int32), ((3, 40), np.int32)):
        outputs = _probabilities(rng, shape)
        labels = rng.integers(0, shape[1], shape[0]).astype(integer)
        for kind in LossType:
            yield Sample((outputs.astype(element.dtype), labels), {"kind": kind.value})
    outputs, labels = _probabilities(rng, (6, 5)), np.arange(6, dtype=np.uint32)
    labels[2] = MASKED_LABEL_CODE
    options = {
        "kind": "CROSS_ENTROPY_LOSS", "deltas_scale": 8.0, "output_scaling": 2.0,
        "has_num_correct": True,
    }  # fmt: skip
    yield Sample(((outputs * 2).astype(element.dtype), labels), options)


_X, _LABELS = np.ones((2, 3), np.float32), np.zeros(2, np.uint32)
_KIND = {"kind": "CROSS_ENTROPY_LOSS"}

register(Op(
    name="popnn.calc_loss", function=calc_loss,
    about="Sum-of-squares or cross-entropy loss per row, its gradient, and how many are right.",
    types=(FLOAT, HALF), samples=_samples, reference=_reference,
    codelets=(loss_codelet, reduce_vertex),
    errors=(
        ErrorCase(Sample((_X, _LABELS), {"kind": "CROSS"}), "there is no loss 'CROSS'"),
        ErrorCase(Sample((_X, _LABELS[:1]), _KIND), "needs 2 labels"),
        ErrorCase(Sample((_X, _X[:, 0]), _KIND), "needs 2 labels of int or unsigned int"),
        ErrorCase(Sample((_X.astype(np.int32), _LABELS), _KIND), "does not work on int"),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 4e-3},
))  # fmt: skip


# -- accuracy --------------------------------------------------------------------------------------


def calc_accuracy(
    graph: Graph, outputs: Tensor, labels: Tensor, sequence: Sequence, name: str = "num_correct"
) -> Tensor:
    """How many rows of outputs [batch, classes] are largest at their label: an unsigned scalar."""
    check_float("calc_accuracy", outputs)
    check_labels("calc_accuracy", outputs, labels)
    guesses = arg_max(graph, outputs, sequence, f"{name}/guess")
    expected = labels.reinterpret(UNSIGNED_INT)
    is_right = Cast(_1 == _2, UNSIGNED_INT)
    hits = popops.map(graph, is_right, [guesses, expected], sequence, f"{name}/hits")
    return popops.reduce(graph, hits, [0], "ADD", sequence, name)


def top_k(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "top_k",
    *, k: int, is_sorted: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest of the last dimension, largest first if sorted, and their places."""
    order = "DESCENDING" if is_sorted else "NONE"
    return top_k_with_permutation(graph, x, k, sequence, name, sort_order=order)


# -- registry ----------------------------------------------------------------------------------


def _accuracy_reference(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    right = outputs.argmax(axis=1) == labels.astype(np.uint32)
    return np.array(np.count_nonzero(right), np.uint32)


def _accuracy_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, integer in (((20, 3), np.int32), ((1, 1), np.uint32), ((5, 31), np.uint32)):
        outputs = rng.normal(0, 1, shape).astype(element.dtype)
        guesses = outputs.argmax(axis=1)
        labels = np.where(rng.random(shape[0]) < 0.5, guesses, rng.integers(0, shape[1], shape[0]))
        yield Sample((outputs, labels.astype(integer)))


def _top_k_reference(x: np.ndarray, *, k: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, places, axis=-1), places.astype(np.uint32)


def _top_k_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, k in (((4, 9), 3), ((2, 1), 1)):
        values = rng.permuted(np.arange(np.prod(shape)).reshape(shape), axis=1)
        yield Sample((values.astype(element.dtype),), {"k": k})


register(Op(
    name="popnn.calc_accuracy", function=calc_accuracy,
    about="How many rows of outputs are largest at their label.", types=(FLOAT, HALF),
    samples=_accuracy_samples, reference=_accuracy_reference,
    codelets=(extreme_vertex, best_vertex, element_codelet, reduce_vertex),
    errors=(
        ErrorCase(Sample((_X, _LABELS[:1])), "needs 2 labels"),
        ErrorCase(Sample((_X[0], _LABELS)), "needs outputs [batch, classes]"),
    ),
))  # fmt: skip
register(Op(
    name="popnn.top_k", function=top_k,
    about="The largest elements of the last dimension, and their places.", types=(FLOAT, HALF),
    samples=_top_k_samples, reference=_top_k_reference, codelets=(sort_vertex, merge_vertex),
))  # fmt: skip
