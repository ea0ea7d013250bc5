"""GRU: forward, backward and weight update over sequences [n_steps, n_batches, size].

Gates stand in PopLibs' order, reset, update, candidate:

    r = σ(x·Wr + h·Ur + br)     c = tanh(x·Wc + (r·h)·Uc + bc)
    u = σ(x·Wu + h·Uu + bu)     h' = u·h + (1 - u)·c
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
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
    gates_of,
    input_creator,
    input_gradient,
    joined_gates,
    last_state_gradient,
    missing_intermediates,
    project,
    state_creator,
    weight_gradient,
    weights_creator,
)
from tremula.poplibs.popops.elementwise.expr import Expr, _1, _2, _3, _4, _5, sigmoid, tanh
from tremula.poplibs.registry import ErrorCase, Sample

N_GATES = 3


class GruWeights(NamedTuple):
    input: Tensor  # [3, n_in, n_out]
    output: Tensor  # [3, n_out, n_out]
    biases: Tensor  # [3, n_out]


class GruForward(NamedTuple):
    """The result of a forward pass, and what the backward pass needs of it."""

    output: Tensor  # [n_steps, n_batches, n_out], or the last step's
    outputs: Tensor | None  # [n_steps + 1, …]: before the first step, and after each
    gates: Tensor | None  # [n_steps, n_batches, 3 · n_out], before their non-linearities


class GruBackward(NamedTuple):
    input_gradient: Tensor
    state_gradient: Tensor  # of the initial state
    gate_gradients: Tensor


create_input = input_creator(N_GATES, "gruInput")
create_initial_state = state_creator("gruState")
create_weights = weights_creator(GruWeights, (2, 1), "gruWeights")


def gru_fwd(
    graph: Graph,
    x: Tensor,
    state: Tensor,
    weights: GruWeights,
    sequence: Sequence,
    name: str = "",
    *,
    inference_only: bool = False,
    output_full_sequence: bool = True,
) -> GruForward:
    """All steps; `output` is every step's or, without `output_full_sequence`, the last one's."""
    name = name or "gruFwd"
    check_operands("gru", x, (state,), weights, N_GATES)
    n_steps, n_batches, n_out = *x.shape[:2], state.shape[1]
    gates = project(graph, x, weights.input, weights.biases, sequence, name)
    output = copied(graph, state, sequence, f"{name}/output")
    first, second = _recurrent_weights(weights, is_transposed=False)
    first = arranged(graph, n_batches, first, sequence, f"{name}/weights")
    second = arranged(graph, n_batches, second, sequence, f"{name}/weights")
    outputs = None
    if output_full_sequence or not inference_only:
        outputs = add_states(graph, state, n_steps, sequence, f"{name}/outputs")
    loop = TimeLoop(graph, n_steps, name)
    step_gates = loop.take(gates)
    z = mat_mul(graph, output, first, loop.body, f"{name}/recurrent")
    popops.map_in_place(graph, _1 + _2, [z, step_gates[:, : 2 * n_out]], loop.body, f"{name}/sum")
    reset, update = gates_of(z, 2)
    reset_output = popops.map(graph, sigmoid(_1) * _2, [reset, output], loop.body, f"{name}/reset")
    candidate = mat_mul(graph, reset_output, second, loop.body, f"{name}/candidate")
    rest = step_gates[:, 2 * n_out :]
    popops.map_in_place(graph, _1 + _2, [candidate, rest], loop.body, f"{name}/sum")
    new = sigmoid(_2) * _1 + (1.0 - sigmoid(_2)) * tanh(_3)
    popops.map_in_place(graph, new, [output, update, candidate], loop.body, f"{name}/output")
    if outputs is not None:
        loop.put(outputs, output, is_after=True)
    if not inference_only:
        loop.put(gates, concat([z, candidate], 1))
    loop.finish(sequence)
    result = outputs[1:] if outputs is not None and output_full_sequence else output
    return GruForward(result, outputs, None if inference_only else gates)


def gru_bwd(
    graph: Graph,
    weights: GruWeights,
    forward: GruForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
) -> GruBackward:
    """Gradients of inputs and initial state, from that of the output."""
    name = name or "gruBwd"
    if forward.outputs is None or forward.gates is None:
        raise missing_intermediates("gru_bwd")
    check_gradient("gru_bwd", output_gradient, forward.outputs[1:])
    n_steps, n_batches, n_out = forward.outputs[1:].shape
    type = output_gradient.type
    state = last_state_gradient(graph, output_gradient, sequence, name)
    gradients = add_sequence(graph, type, forward.gates.shape, f"{name}/gateGradients")
    first, second = _recurrent_weights(weights, is_transposed=True)
    first = arranged(graph, n_batches, first, sequence, f"{name}/weights")
    second = arranged(graph, n_batches, second, sequence, f"{name}/weights")
    loop = TimeLoop(graph, n_steps, name, is_backward=True)
    add_own_gradient(loop, state, output_gradient, sequence)
    forward_gates = gates_of(loop.take(forward.gates), N_GATES)
    before = loop.take(forward.outputs)
    new = graph.add_variable(type, (n_batches, N_GATES * n_out), f"{name}/gates", mapping="linear")
    product = _add_gate_gradients(graph, state, before, forward_gates, second, new, loop)
    loop.put(gradients, new)
    rest = mat_mul(graph, new[:, : 2 * n_out], first, loop.body, f"{name}/recurrent")
    earlier = _1 * sigmoid(_2) + _3 * sigmoid(_4) + _5
    operands = [state, forward_gates[1], product, forward_gates[0], rest]
    popops.map_in_place(graph, earlier, operands, loop.body, f"{name}/before")
    loop.finish(sequence)
    inputs = input_gradient(graph, gradients, weights.input, sequence, name)
    return GruBackward(inputs, state, gradients)


def _add_gate_gradients(
    graph: Graph, state: Tensor, before: Tensor, saved: list[Tensor], matrix: Tensor, new: Tensor,
    loop: TimeLoop,
) -> Tensor:  # fmt: skip
    """Write the gradients of a step's gates to `new`; returns that of what the reset gate kept."""
    reset, update, candidate = saved
    to_reset, to_update, to_candidate = gates_of(new, N_GATES)

    def add(expr: Expr, operands: list[Tensor], out: Tensor, what: str) -> None:
        popops.map_with_output(graph, expr, operands, out, loop.body, f"{loop.name}/{what}")

    slope = sigmoid(_3) * (1.0 - sigmoid(_3))
    bend = 1.0 - tanh(_2) * tanh(_2)
    add(_1 * bend * (1.0 - sigmoid(_3)), [state, candidate, update], to_candidate, "candidate")
    add(_1 * (_4 - tanh(_2)) * slope, [state, candidate, update, before], to_update, "update")
    product = mat_mul(graph, to_candidate, matrix, loop.body, f"{loop.name}/candidate")
    add(_1 * _2 * slope, [product, before, reset], to_reset, "reset")
    return product


def gru_wu(
    graph: Graph,
    x: Tensor,
    forward: GruForward,
    backward: GruBackward,
    sequence: Sequence,
    name: str = "",
) -> GruWeights:
    """Gradients of all weights, from those of the gates."""
    name = name or "gruWu"
    if forward.outputs is None or forward.gates is None:
        raise missing_intermediates("gru_wu")
    gates, before = backward.gate_gradients, forward.outputs[:-1]
    inputs = weight_gradient(graph, x, gates, N_GATES, sequence, name)
    n = 2 * before.shape[2]
    both = weight_gradient(graph, before, gates[..., :n], 2, sequence, name)
    reset = gates_of(forward.gates, N_GATES)[0]
    reset_output = popops.map(graph, sigmoid(_1) * _2, [reset, before], sequence, f"{name}/reset")
    last = weight_gradient(graph, reset_output, gates[..., n:], 1, sequence, name)
    biases = bias_gradient(graph, gates, N_GATES, sequence, name)
    return GruWeights(inputs, concat([both, last]), biases)


def gru_bwd_with_wu(
    graph: Graph,
    x: Tensor,
    weights: GruWeights,
    forward: GruForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
) -> tuple[GruBackward, GruWeights]:
    """Gradients of inputs, initial state and weights."""
    backward = gru_bwd(graph, weights, forward, output_gradient, sequence, name)
    return backward, gru_wu(graph, x, forward, backward, sequence, name)


def _recurrent_weights(weights: GruWeights, *, is_transposed: bool) -> tuple[Tensor, Tensor]:
    """Matrices for the reset and update gates, and for the candidate."""
    both = joined_gates(weights.output[:2]), weights.output[2]
    return (both[0].transpose(), both[1].transpose()) if is_transposed else both


# -- registry: samples, and the same cell in NumPy -------------------------------------------------


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
    is_whole, parameters = gradient.rank == 3, GruWeights(*weights)
    forward = gru_fwd(graph, x, state, parameters, sequence, output_full_sequence=is_whole)
    backward, update = gru_bwd_with_wu(graph, x, parameters, forward, gradient, sequence)
    return forward.output, backward.input_gradient, backward.state_gradient, *update


def _gru_steps(x: np.ndarray, state: np.ndarray, *weights: np.ndarray) -> tuple[np.ndarray, list]:
    inputs, recurrent, biases = weights
    outputs, gates = [state], []
    for row in x:
        h = outputs[-1]
        z = [row @ inputs[k] + biases[k] for k in range(3)]
        reset, update = (numpy_sigmoid(z[k] + h @ recurrent[k]) for k in range(2))
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
