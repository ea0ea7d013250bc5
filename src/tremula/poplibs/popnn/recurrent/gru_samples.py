"""The registry's entries of GRU: samples, and the cell in NumPy."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popnn.recurrent.cell_samples import (
    BAD_GRADIENT,
    Arrays,
    numpy_sigmoid,
    operands,
    register_cell,
    with_gradient,
)
from tremula.poplibs.popnn.recurrent.gru import GruWeights, gru_bwd_with_wu, gru_fwd
from tremula.poplibs.registry import ErrorCase, Sample

# -- registry --------------------------------------------------------------------------------------


def gru_forward_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *weights: Tensor, sequence: Sequence, **options: bool
) -> Tensor:
    made = GruWeights(*weights)
    return gru_fwd(graph, x, state, made, sequence, **options).output  # pyright: ignore[reportArgumentType]


def gru_training_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *rest: Tensor, sequence: Sequence
) -> tuple[Tensor, ...]:
    """(Output, gradients of x, state and weights) of gru_fwd and gru_bwd_with_wu."""
    *weights, gradient = rest
    is_whole, given = gradient.rank == 3, GruWeights(*weights)
    forward = gru_fwd(graph, x, state, given, sequence, output_full_sequence=is_whole)
    backward, update = gru_bwd_with_wu(graph, x, given, forward, gradient, sequence)
    return forward.output, backward.input_gradient, backward.state_gradient, *update


def _gru_steps(x: np.ndarray, state: np.ndarray, *weights: np.ndarray) -> tuple[np.ndarray, list]:
    inputs, recurrent, biases = weights
    outputs, gates = [state], []
    for row in x:
        h = outputs[-1]
        z = [row @ inputs[k] + biases[k] for k in range(3)]
        reset, update = numpy_sigmoid(z[0] + h @ recurrent[0]), numpy_sigmoid(z[1] + h @ recurrent[1])
        candidate = np.tanh(z[2] + (reset * h) @ recurrent[2])
        outputs.append(update * h + (1 - update) * candidate)
        gates.append((reset, update, candidate))
    return np.array(outputs), gates


def _gru_forward(
    *arrays: np.ndarray, output_full_sequence: bool = True, inference_only: bool = False
) -> np.ndarray:
    del inference_only
    outputs, _ = _gru_steps(*(a.astype(np.float64) for a in arrays))
    return (outputs[1:] if output_full_sequence else outputs[-1]).astype(arrays[0].dtype)


def _gru_training(*arrays: np.ndarray) -> Arrays:
    x, state, inputs, recurrent, biases, gradient = (a.astype(np.float64) for a in arrays)
    outputs, gates = _gru_steps(x, state, inputs, recurrent, biases)
    is_whole = gradient.ndim == 3
    to_state = np.zeros_like(state) if is_whole else gradient
    to_x = np.zeros_like(x)
    updates = [np.zeros_like(w) for w in (inputs, recurrent, biases)]
    for t in reversed(range(len(x))):
        to_state = to_state + gradient[t] if is_whole else to_state
        reset, update, candidate = gates[t]
        before = outputs[t]
        to_candidate = to_state * (1 - update) * (1 - candidate**2)
        to_update = to_state * (before - candidate) * update * (1 - update)
        to_kept = to_candidate @ recurrent[2].T
        to_reset = to_kept * before * reset * (1 - reset)
        all_gates = (to_reset, to_update, to_candidate)
        to_state = to_state * update + to_kept * reset
        to_state = to_state + to_reset @ recurrent[0].T + to_update @ recurrent[1].T
        for k, g in enumerate(all_gates):
            to_x[t] += g @ inputs[k].T
            updates[0][k] += x[t].T @ g
            updates[1][k] += (reset * before if k == 2 else before).T @ g
            updates[2][k] += g.sum(0)
    result = outputs[1:] if is_whole else outputs[-1]
    return tuple(a.astype(arrays[0].dtype) for a in (result, to_x, to_state, *updates))


def _gru_forward_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(operands(type, rng, (1, 1, 1, 1), 3, 1))
    yield Sample(operands(type, rng, (5, 2, 3, 7), 3, 1))
    options = {"inference_only": True, "output_full_sequence": False}
    yield Sample(operands(type, rng, (4, 3, 8, 6), 3, 1), options)


def _gru_training_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for is_whole in (True, False):
        yield Sample(with_gradient(type, rng, 3, is_whole=is_whole))

_GRU = operands(FLOAT, np.random.default_rng(0), (2, 1, 2, 3), 3, 1)

register_cell(
    "popnn.gru.gru_fwd",
    "GRU over a sequence: its outputs.",
    gru_forward_of_tensors,
    _gru_forward,
    _gru_forward_samples,
    ErrorCase(Sample((_GRU[0][0], *_GRU[1:])), "gru expected x [n_steps, n_batches, n_in]"),
    ErrorCase(Sample((*_GRU[:4], _GRU[4].astype(np.int32))), "all operands alike, got"),
)

register_cell(
    "popnn.gru.gru_bwd_with_wu",
    "GRU over a sequence: gradients of inputs, initial state and weights.",
    gru_training_of_tensors,
    _gru_training,
    _gru_training_samples,
    ErrorCase(Sample((*_GRU, BAD_GRADIENT)), "gru_bwd expected an output gradient of float"),
)
