"""How many rows of outputs are right, and the largest outputs of each row."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popnn.checks import check_float, check_labels
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import Cast, _1, _2
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.popops.sorting.arg_max import arg_max, best_vertex, extreme_vertex
from tremula.poplibs.popops.sorting.codelets import merge_vertex, sort_vertex
from tremula.poplibs.popops.sorting.top_k import top_k_with_permutation
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


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


_X, _LABELS = np.ones((2, 3), np.float32), np.zeros(2, np.uint32)

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
