"""The registry's entries of the GRU that resets after its product: samples, the cell in NumPy."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popnn.recurrent.cell_samples import Arrays, register_cell, numpy_sigmoid
from tremula.poplibs.popnn.recurrent.gru_reset_after import (
    GruAfterWeights,
    gru_after_bwd_with_wu,
    gru_after_fwd,
)
from tremula.poplibs.registry import ErrorCase, Sample


def forward_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *weights: Tensor, sequence: Sequence, **options: bool
) -> Tensor:
    made = GruAfterWeights(*weights)
    return gru_after_fwd(graph, x, state, made, sequence, **options).output  # pyright: ignore[reportArgumentType]


def training_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *rest: Tensor, sequence: Sequence
) -> tuple[Tensor, ...]:
    """(Output, gradients of x, state and weights) of both passes."""
    *weights, gradient = rest
    given = GruAfterWeights(*weights)
    forward = gru_after_fwd(graph, x, state, given, sequence)
    found = gru_after_bwd_with_wu(graph, x, given, forward, gradient, sequence)
    return forward.output, found.input, found.state, *found.weights


def _steps(x: np.ndarray, state: np.ndarray, *weights: np.ndarray) -> tuple[np.ndarray, list]:
    inputs, recurrent, biases, own = weights
    outputs, gates = [state], []
    for row in x:
        h = outputs[-1]
        z = [row @ inputs[k] + biases[k] for k in range(3)]
        reset, update = numpy_sigmoid(z[0] + h @ recurrent[0]), numpy_sigmoid(z[1] + h @ recurrent[1])
        product = h @ recurrent[2] + own
        candidate = np.tanh(z[2] + reset * product)
        outputs.append(update * h + (1 - update) * candidate)
        gates.append((reset, update, candidate, product))
    return np.array(outputs), gates


def _forward(*arrays: np.ndarray, inference_only: bool = False) -> np.ndarray:
    del inference_only
    outputs, _ = _steps(*(a.astype(np.float64) for a in arrays))
    return outputs[1:].astype(arrays[0].dtype)


def _training(*arrays: np.ndarray) -> Arrays:
    x, state, inputs, recurrent, biases, own, gradient = (a.astype(np.float64) for a in arrays)
    outputs, gates = _steps(x, state, inputs, recurrent, biases, own)
    is_whole = gradient.ndim == 3
    to_state = np.zeros_like(state) if is_whole else gradient
    to_x = np.zeros_like(x)
    updates = [np.zeros_like(w) for w in (inputs, recurrent, biases, own)]
    for t in reversed(range(len(x))):
        to_state = to_state + gradient[t] if is_whole else to_state
        reset, update, candidate, product = gates[t]
        before = outputs[t]
        to_candidate = to_state * (1 - update) * (1 - candidate**2)
        to_update = to_state * (before - candidate) * update * (1 - update)
        to_reset = to_candidate * product * reset * (1 - reset)
        of_products = (to_reset, to_update, to_candidate * reset)
        to_state = to_state * update + sum(
            g @ recurrent[k].T for k, g in enumerate(of_products)
        )  # fmt: skip
        for k, g in enumerate((to_reset, to_update, to_candidate)):
            to_x[t] += g @ inputs[k].T
            updates[0][k] += x[t].T @ g
            updates[1][k] += before.T @ of_products[k]
            updates[2][k] += g.sum(0)
        updates[3] += of_products[2].sum(0)
    return tuple(a.astype(arrays[0].dtype) for a in (outputs[1:], to_x, to_state, *updates))


def _operands(
    element: Type, rng: np.random.Generator, n_steps: int, n_in: int, n_out: int
) -> Arrays:
    shapes = (
        (n_steps, 2, n_in), (2, n_out), (3, n_in, n_out), (3, n_out, n_out), (3, n_out), (n_out,),
    )  # fmt: skip
    return tuple((rng.normal(0, 0.5, s)).astype(element.dtype) for s in shapes)


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(_operands(element, rng, 3, 4, 5))
    yield Sample(_operands(element, rng, 1, 2, 3), {"inference_only": True})


def _training_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 2, 5), (2, 5)):  # of all outputs, and of the last alone
        gradient = rng.normal(0, 1, shape).astype(element.dtype)
        yield Sample((*_operands(element, rng, 3, 4, 5), gradient))


_GOOD = _operands(FLOAT, np.random.default_rng(0), 3, 4, 5)

register_cell(
    "popnn.gru_reset_after.gru_after_fwd",
    "All steps of a GRU whose reset gate acts after the recurrent product.",
    forward_of_tensors,
    _forward,
    _samples,
    ErrorCase(Sample((_GOOD[0][0], *_GOOD[1:])), "gru expected x [n_steps"),
)
register_cell(
    "popnn.gru_reset_after.gru_after_bwd_with_wu",
    "Gradients of such a GRU's inputs, state and weights.",
    training_of_tensors,
    _training,
    _training_samples,
    ErrorCase(Sample((*_GOOD, _GOOD[0])), "gru_after_bwd_with_wu expected an output gradient"),
)
