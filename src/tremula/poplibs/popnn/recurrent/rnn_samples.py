"""The registry's entries of vanilla recurrent nets: samples, and the cell in NumPy."""

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
from tremula.poplibs.popnn.recurrent.rnn import RnnWeights, rnn_bwd_with_wu, rnn_fwd
from tremula.poplibs.registry import ErrorCase, Sample

# -- registry --------------------------------------------------------------------------------------


def rnn_forward_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *weights: Tensor, sequence: Sequence, **options: object
) -> Tensor:
    made = RnnWeights(*weights)
    return rnn_fwd(graph, x, state, made, sequence, **options).output  # pyright: ignore[reportArgumentType]


def rnn_training_of_tensors(
    graph: Graph, x: Tensor, state: Tensor, *rest: Tensor, sequence: Sequence,
    non_linearity: str = "TANH",
) -> tuple[Tensor, ...]:  # fmt: skip
    """(Output, gradients of x, state and weights) of rnn_fwd and rnn_bwd_with_wu."""
    *weights, gradient = rest
    is_whole, given = gradient.rank == 3, RnnWeights(*weights)
    forward = rnn_fwd(
        graph, x, state, given, sequence,
        output_full_sequence=is_whole, non_linearity=non_linearity,
    )  # fmt: skip
    backward, update = rnn_bwd_with_wu(
        graph, x, given, forward, gradient, sequence, non_linearity=non_linearity
    )
    return forward.output, backward.input_gradient, backward.state_gradient, *update

_NUMPY_FUNCTIONS = {
    "TANH": (np.tanh, lambda y: 1 - y**2),
    "SIGMOID": (numpy_sigmoid, lambda y: y * (1 - y)),
    "RELU": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(np.float64)),
}


def _rnn_steps(function: str, x: np.ndarray, state: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    inputs, recurrent, biases = weights
    outputs = [state]
    for row in x:
        outputs.append(
            _NUMPY_FUNCTIONS[function][0](row @ inputs[0] + outputs[-1] @ recurrent[0] + biases)
        )
    return np.array(outputs)


def _rnn_forward(
    *arrays: np.ndarray, non_linearity: str = "TANH", output_full_sequence: bool = True,
    inference_only: bool = False,
) -> np.ndarray:  # fmt: skip
    del inference_only
    outputs = _rnn_steps(non_linearity, *(a.astype(np.float64) for a in arrays))
    return (outputs[1:] if output_full_sequence else outputs[-1]).astype(arrays[0].dtype)


def _rnn_training(*arrays: np.ndarray, non_linearity: str = "TANH") -> Arrays:
    x, state, inputs, recurrent, biases, gradient = (a.astype(np.float64) for a in arrays)
    outputs = _rnn_steps(non_linearity, x, state, inputs, recurrent, biases)
    is_whole = gradient.ndim == 3
    to_state = np.zeros_like(state) if is_whole else gradient
    to_x = np.zeros_like(x)
    updates = [np.zeros_like(w) for w in (inputs, recurrent, biases)]
    for t in reversed(range(len(x))):
        to_state = to_state + gradient[t] if is_whole else to_state
        to_sum = to_state * _NUMPY_FUNCTIONS[non_linearity][1](outputs[t + 1])
        to_x[t] = to_sum @ inputs[0].T
        updates[0][0] += x[t].T @ to_sum
        updates[1][0] += outputs[t].T @ to_sum
        updates[2][0] += to_sum.sum(0)
        to_state = to_sum @ recurrent[0].T
    result = outputs[1:] if is_whole else outputs[-1]
    return tuple(a.astype(arrays[0].dtype) for a in (result, to_x, to_state, *updates))


def _rnn_forward_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(operands(type, rng, (1, 1, 1, 1), 1, 1), {"non_linearity": "RELU"})
    yield Sample(operands(type, rng, (5, 2, 3, 7), 1, 1))
    options = {"inference_only": True, "output_full_sequence": False, "non_linearity": "SIGMOID"}
    yield Sample(operands(type, rng, (4, 3, 8, 6), 1, 1), options)


def _rnn_training_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for function, is_whole in (("TANH", True), ("SIGMOID", False), ("RELU", True)):
        inputs = with_gradient(type, rng, 1, is_whole=is_whole)
        yield Sample(inputs, {"non_linearity": function})

_RNN = operands(FLOAT, np.random.default_rng(0), (2, 1, 2, 3), 1, 1)

register_cell(
    "popnn.rnn.rnn_fwd",
    "A vanilla recurrent net over a sequence: its outputs.",
    rnn_forward_of_tensors,
    _rnn_forward,
    _rnn_forward_samples,
    ErrorCase(Sample((_RNN[0][0], *_RNN[1:])), "rnn expected x [n_steps, n_batches, n_in]"),
    ErrorCase(Sample(_RNN, {"non_linearity": "TAHN"}), "did you mean 'TANH'"),
)

register_cell(
    "popnn.rnn.rnn_bwd_with_wu",
    "A vanilla recurrent net: gradients of inputs, initial state and weights.",
    rnn_training_of_tensors,
    _rnn_training,
    _rnn_training_samples,
    ErrorCase(Sample((*_RNN, BAD_GRADIENT)), "rnn_bwd expected an output gradient of float"),
)
