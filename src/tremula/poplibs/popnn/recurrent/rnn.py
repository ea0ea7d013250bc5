"""Vanilla recurrent nets: h' = f(x·W + h·U + b), with f tanh, relu or sigmoid."""

from typing import NamedTuple

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import create_mat_mul_input_rhs, mat_mul
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
    input_gradient,
    last_state_gradient,
    missing_intermediates,
    new_input,
    new_state,
    project,
    weight_gradient,
)
from tremula.poplibs.popops.elementwise.expr import Const, Expr, _1, _2, relu, select, sigmoid, tanh
from tremula.poplibs.registry import PoplibsError

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
    sum_gradients: Tensor  # of what the non-linearity was given


def create_input(
    graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
    name: str = "",
) -> Tensor:  # fmt: skip
    """Inputs [n_steps, n_batches, n_in], laid out for the product with the input weights."""
    shape = (n_steps, n_batches, n_in)
    return new_input(graph, type, shape, n_out, name or "rnnInput")


def create_initial_state(
    graph: Graph, type: Type | str, n_batches: int, n_out: int, name: str = ""
) -> Tensor:
    return new_state(graph, type, n_batches, n_out, name or "rnnState")


def create_weights(
    graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
    name: str = "",
) -> RnnWeights:  # fmt: skip
    """Weights laid out for the products of the forward pass."""
    name, wide = name or "rnnWeights", (n_steps * n_batches, n_in)
    inputs = create_mat_mul_input_rhs(graph, type, wide, (n_in, n_out), name)
    outputs = create_mat_mul_input_rhs(graph, type, (n_batches, n_out), (n_out, n_out), name)
    biases = graph.add_variable(as_type(type), [1, n_out], f"{name}/biases", mapping="linear")
    return RnnWeights(inputs.expand([0]), outputs.expand([0]), biases)


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
