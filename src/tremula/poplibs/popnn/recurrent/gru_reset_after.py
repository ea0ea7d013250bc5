"""GRU whose reset gate acts after the recurrent product, so that product has biases of its own.

    r = σ(x·Wr + h·Ur + br)     c = tanh(x·Wc + bc + r·(h·Uc + dc))
    u = σ(x·Wu + h·Uu + bu)     h' = u·h + (1 - u)·c

Gates stand in the order reset, update, candidate. All three recurrent products are one.
"""

from typing import NamedTuple

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import mat_mul
from tremula.poplibs.popnn.recurrent.gru import N_GATES, GruForward
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
    input_gradient,
    joined_gates,
    last_state_gradient,
    missing_intermediates,
    project,
    weight_gradient,
)
from tremula.poplibs.popops.elementwise.expr import Expr, _1, _2, _3, _4, sigmoid, tanh


class GruAfterWeights(NamedTuple):
    input: Tensor  # [3, n_in, n_out]
    output: Tensor  # [3, n_out, n_out]
    biases: Tensor  # [3, n_out]
    candidate_bias: Tensor  # [n_out]: d of the recurrent product


class GruAfterGradients(NamedTuple):
    input: Tensor
    state: Tensor  # of the initial state
    weights: GruAfterWeights


def gru_after_fwd(
    graph: Graph, x: Tensor, state: Tensor, weights: GruAfterWeights, sequence: Sequence,
    name: str = "", *, inference_only: bool = False,
) -> GruForward:  # fmt: skip
    """All steps. `gates` holds reset, update, candidate and the candidate's recurrent product."""
    name = name or "gruFwd"
    check_operands("gru", x, (state,), weights[:3], N_GATES)
    n_steps, n_batches, n_out = *x.shape[:2], state.shape[1]
    sums = project(graph, x, weights.input, weights.biases, sequence, name)
    output = copied(graph, state, sequence, f"{name}/output")
    matrix = joined_gates(weights.output)
    recurrent = arranged(graph, n_batches, matrix, sequence, f"{name}/weights")
    outputs = add_states(graph, state, n_steps, sequence, f"{name}/outputs")
    loop = TimeLoop(graph, n_steps, name)
    given = loop.take(sums)
    product = mat_mul(graph, output, recurrent, loop.body, f"{name}/recurrent")
    both, last = product[:, : 2 * n_out], product[:, 2 * n_out :]
    popops.map_in_place(graph, _1 + _2, [both, given[:, : 2 * n_out]], loop.body, f"{name}/sum")
    popops.map_in_place(graph, _1 + _2, [last, weights.candidate_bias], loop.body, f"{name}/bias")
    reset, update = gates_of(both, 2)
    operands = [given[:, 2 * n_out :], reset, last]
    candidate = popops.map(graph, _1 + sigmoid(_2) * _3, operands, loop.body, f"{name}/candidate")
    new = sigmoid(_2) * _1 + (1.0 - sigmoid(_2)) * tanh(_3)
    popops.map_in_place(graph, new, [output, update, candidate], loop.body, f"{name}/output")
    loop.put(outputs, output, is_after=True)
    gates = None
    if not inference_only:
        gates = add_sequence(graph, x.type, (n_steps, n_batches, 4 * n_out), f"{name}/kept")
        loop.put(gates, concat([both, candidate, last], 1))
    loop.finish(sequence)
    return GruForward(outputs[1:], outputs, gates)


def gru_after_bwd_with_wu(
    graph: Graph, x: Tensor, weights: GruAfterWeights, forward: GruForward,
    output_gradient: Tensor, sequence: Sequence, name: str = "",
) -> GruAfterGradients:  # fmt: skip
    """Gradients of inputs, initial state and weights, from that of all outputs or the last."""
    name = name or "gruBwd"
    if forward.outputs is None or forward.gates is None:
        raise missing_intermediates("gru_after_bwd_with_wu")
    check_gradient("gru_after_bwd_with_wu", output_gradient, forward.outputs[1:])
    state, gradients = _add_loop(graph, weights, forward, output_gradient, sequence, name)
    n = weights.output.shape[2]
    of_sums = gradients[..., : 3 * n]
    of_product = concat([gradients[..., : 2 * n], gradients[..., 3 * n :]], 2)
    before = forward.outputs[:-1]
    inputs = weight_gradient(graph, x, of_sums, N_GATES, sequence, name)
    outputs = weight_gradient(graph, before, of_product, N_GATES, sequence, name)
    biases = bias_gradient(graph, gradients, 4, sequence, name)
    of_weights = GruAfterWeights(inputs, outputs, biases[:3], biases[3])
    of_x = input_gradient(graph, of_sums, weights.input, sequence, name)
    return GruAfterGradients(of_x, state, of_weights)


def _add_loop(
    graph: Graph, weights: GruAfterWeights, forward: GruForward, output_gradient: Tensor,
    sequence: Sequence, name: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The initial state's gradient, and those of all gates and of the candidate's product."""
    assert forward.outputs is not None
    assert forward.gates is not None
    n_steps, n_batches, n_out = forward.outputs[1:].shape
    type = output_gradient.type
    state = last_state_gradient(graph, output_gradient, sequence, name)
    gradients = add_sequence(graph, type, forward.gates.shape, f"{name}/gateGradients")
    matrix = joined_gates(weights.output).transpose()
    recurrent = arranged(graph, n_batches, matrix, sequence, f"{name}/weights")
    loop = TimeLoop(graph, n_steps, name, is_backward=True)
    add_own_gradient(loop, state, output_gradient, sequence)
    kept = gates_of(loop.take(forward.gates), 4)
    before = loop.take(forward.outputs)
    new = graph.add_variable(type, (n_batches, 4 * n_out), f"{name}/gates", mapping="linear")
    _add_gate_gradients(graph, state, before, kept, gates_of(new, 4), loop, name)
    loop.put(gradients, new)
    of_product = concat([new[:, : 2 * n_out], new[:, 3 * n_out :]], 1)
    rest = mat_mul(graph, of_product, recurrent, loop.body, f"{name}/recurrent")
    earlier = _1 * sigmoid(_2) + _3
    popops.map_in_place(graph, earlier, [state, kept[1], rest], loop.body, f"{name}/before")
    loop.finish(sequence)
    return state, gradients


def _add_gate_gradients(
    graph: Graph, state: Tensor, before: Tensor, kept: list[Tensor], new: list[Tensor],
    loop: TimeLoop, name: str,
) -> None:  # fmt: skip
    reset, update, candidate, product = kept
    to_reset, to_update, to_candidate, to_product = new

    def add(expr: Expr, operands: list[Tensor], out: Tensor, what: str) -> None:
        popops.map_with_output(graph, expr, operands, out, loop.body, f"{name}/{what}")

    slope = sigmoid(_3) * (1.0 - sigmoid(_3))
    open_part = (1.0 - tanh(_2) * tanh(_2)) * (1.0 - sigmoid(_3))
    add(_1 * open_part, [state, candidate, update], to_candidate, "candidate")
    add(_1 * (_4 - tanh(_2)) * slope, [state, candidate, update, before], to_update, "update")
    add(_1 * sigmoid(_2), [to_candidate, reset], to_product, "product")
    add(_1 * _2 * slope, [to_candidate, product, reset], to_reset, "reset")
