"""Vanilla recurrent nets: h' = f(x·W + h·U + b), with f tanh, relu or sigmoid."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import mat_mul
from tremula.poplibs.popnn.recurrent.cell_samples import (
    BAD_GRADIENT,
    Arrays,
    numpy_sigmoid,
    operands,
    register_cell,
    with_gradient,
)
from tremula.poplibs.popnn.recurrent.loops import (
    TimeLoop,
    add_own_gradient,
    add_sequence,
    add_states,
    arranged,
    bias_gradient,
    check_gradient,
    check_operands,
    copied,
    input_creator,
    input_gradient,
    last_state_gradient,
    missing_intermediates,
    project,
    state_creator,
    weight_gradient,
    weights_creator,
)
from tremula.poplibs.popops.elementwise.expr import Const, Expr, _1, _2, relu, select, sigmoid, tanh
from tremula.poplibs.registry import ErrorCase, PoplibsError, Sample

# Each non-linearity of a sum, and a gradient _1 through it from its value _2.
_FUNCTIONS: dict[str, tuple[Expr, Expr]] = {
    "TANH": (tanh(_1 + _2), _1 * (1.0 - _2 * _2)),
    "SIGMOID": (sigmoid(_1 + _2), _1 * (_2 * (1.0 - _2))),
    "RELU": (relu(_1 + _2), select(_1, Const(0.0), _2 > 0.0)),
}


class RnnWeights(NamedTuple):
    input: Tensor  # [1, n_in, n_out]
    output: Tensor  # [1, n_out, n_out]
    biases: Tensor  # [1, n_out]


class RnnForward(NamedTuple):
    output: Tensor  # [n_steps, n_batches, n_out], or the last step's
    outputs: Tensor | None  # [n_steps + 1, …]: before the first step, and after each


class RnnBackward(NamedTuple):
    input_gradient: Tensor
    state_gradient: Tensor  # of the initial state
    sum_gradients: Tensor  # of the non-linearity's input


create_input = input_creator(1, "rnnInput")
create_initial_state = state_creator("rnnState")
create_weights = weights_creator(RnnWeights, (1,), "rnnWeights")


def rnn_fwd(
    graph: Graph,
    x: Tensor,
    state: Tensor,
    weights: RnnWeights,
    sequence: Sequence,
    name: str = "",
    *,
    non_linearity: str = "TANH",
    inference_only: bool = False,
    output_full_sequence: bool = True,
) -> RnnForward:
    """All steps; `output` is every step's or, without `output_full_sequence`, the last one's."""
    name = name or "rnnFwd"
    check_operands("rnn", x, (state,), weights, 1)
    function, _ = _function(non_linearity)
    n_steps, n_batches, _ = x.shape
    sums = project(graph, x, weights.input, weights.biases, sequence, name)
    output = copied(graph, state, sequence, f"{name}/output")
    recurrent = arranged(graph, n_batches, weights.output[0], sequence, f"{name}/weights")
    outputs = None
    if output_full_sequence or not inference_only:
        outputs = add_states(graph, state, n_steps, sequence, f"{name}/outputs")
    loop = TimeLoop(graph, n_steps, name)
    product = mat_mul(graph, output, recurrent, loop.body, f"{name}/recurrent")
    operands = [product, loop.take(sums)]
    popops.map_with_output(graph, function, operands, output, loop.body, f"{name}/output")
    if outputs is not None:
        loop.put(outputs, output, is_after=True)
    loop.finish(sequence)
    result = outputs[1:] if outputs is not None and output_full_sequence else output
    return RnnForward(result, None if inference_only else outputs)


def rnn_bwd(
    graph: Graph,
    weights: RnnWeights,
    forward: RnnForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    non_linearity: str = "TANH",
) -> RnnBackward:
    """Gradients of inputs and initial state, from that of the output."""
    name = name or "rnnBwd"
    if forward.outputs is None:
        raise missing_intermediates("rnn_bwd")
    _, slope = _function(non_linearity)
    check_gradient("rnn_bwd", output_gradient, forward.outputs[1:])
    shape, type = forward.outputs[1:].shape, output_gradient.type
    state = last_state_gradient(graph, output_gradient, sequence, name)
    gradients = add_sequence(graph, type, shape, f"{name}/sumGradients")
    matrix = weights.output[0].transpose()
    recurrent = arranged(graph, shape[1], matrix, sequence, f"{name}/weights")
    loop = TimeLoop(graph, shape[0], name, is_backward=True)
    add_own_gradient(loop, state, output_gradient, sequence)
    after = loop.take(forward.outputs, is_after=True)
    popops.map_in_place(graph, slope, [state, after], loop.body, f"{name}/slope")
    loop.put(gradients, state)
    product = mat_mul(graph, state, recurrent, loop.body, f"{name}/recurrent")
    loop.body.add(Copy(product, state))
    loop.finish(sequence)
    inputs = input_gradient(graph, gradients, weights.input, sequence, name)
    return RnnBackward(inputs, state, gradients)


def rnn_wu(
    graph: Graph,
    x: Tensor,
    forward: RnnForward,
    backward: RnnBackward,
    sequence: Sequence,
    name: str = "",
) -> RnnWeights:
    """Gradients of all weights."""
    name = name or "rnnWu"
    if forward.outputs is None:
        raise missing_intermediates("rnn_wu")
    sums, before = backward.sum_gradients, forward.outputs[:-1]
    inputs = weight_gradient(graph, x, sums, 1, sequence, name)
    outputs = weight_gradient(graph, before, sums, 1, sequence, name)
    return RnnWeights(inputs, outputs, bias_gradient(graph, sums, 1, sequence, name))


def rnn_bwd_with_wu(
    graph: Graph,
    x: Tensor,
    weights: RnnWeights,
    forward: RnnForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    non_linearity: str = "TANH",
) -> tuple[RnnBackward, RnnWeights]:
    """Gradients of inputs, initial state and weights."""
    backward = rnn_bwd(
        graph, weights, forward, output_gradient, sequence, name, non_linearity=non_linearity
    )
    return backward, rnn_wu(graph, x, forward, backward, sequence, name)


def _function(non_linearity: str) -> tuple[Expr, Expr]:
    if non_linearity not in _FUNCTIONS:
        raise PoplibsError(
            f"rnn has no non-linearity {non_linearity!r}.",
            source=user_source(),
            hint=suggest(str(non_linearity), _FUNCTIONS),
        )
    return _FUNCTIONS[non_linearity]


# -- registry: samples, and the same cell in NumPy -------------------------------------------------


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
    is_whole, parameters = gradient.rank == 3, RnnWeights(*weights)
    forward = rnn_fwd(
        graph, x, state, parameters, sequence,
        output_full_sequence=is_whole, non_linearity=non_linearity,
    )  # fmt: skip
    backward, update = rnn_bwd_with_wu(
        graph, x, parameters, forward, gradient, sequence, non_linearity=non_linearity
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
