"""GRU whose reset gate acts after the recurrent product, so that product has its own biases.

    r = σ(x·Wr + h·Ur + br)     c = tanh(x·Wc + bc + r·(h·Uc + dc))
    u = σ(x·Wu + h·Uu + bu)     h' = u·h + (1 - u)·c

Gates stand in the order reset, update, candidate. All three recurrent products are one.
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
from tremula.poplibs.popnn.recurrent.cell_samples import Arrays, numpy_sigmoid, register_cell
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
from tremula.poplibs.registry import ErrorCase, Sample


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
    step_sums = loop.take(sums)
    product = mat_mul(graph, output, recurrent, loop.body, f"{name}/recurrent")
    both, last = product[:, : 2 * n_out], product[:, 2 * n_out :]
    popops.map_in_place(graph, _1 + _2, [both, step_sums[:, : 2 * n_out]], loop.body, f"{name}/sum")
    popops.map_in_place(graph, _1 + _2, [last, weights.candidate_bias], loop.body, f"{name}/bias")
    reset, update = gates_of(both, 2)
    operands = [step_sums[:, 2 * n_out :], reset, last]
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
    forward_gates = gates_of(loop.take(forward.gates), 4)
    before = loop.take(forward.outputs)
    new = graph.add_variable(type, (n_batches, 4 * n_out), f"{name}/gates", mapping="linear")
    _add_gate_gradients(graph, state, before, forward_gates, gates_of(new, 4), loop, name)
    loop.put(gradients, new)
    of_product = concat([new[:, : 2 * n_out], new[:, 3 * n_out :]], 1)
    rest = mat_mul(graph, of_product, recurrent, loop.body, f"{name}/recurrent")
    earlier = _1 * sigmoid(_2) + _3
    popops.map_in_place(
        graph, earlier, [state, forward_gates[1], rest], loop.body, f"{name}/before"
    )
    loop.finish(sequence)
    return state, gradients


def _add_gate_gradients(
    graph: Graph, state: Tensor, before: Tensor, saved: list[Tensor], new: list[Tensor],
    loop: TimeLoop, name: str,
) -> None:  # fmt: skip
    reset, update, candidate, product = saved
    to_reset, to_update, to_candidate, to_product = new

    def add(expr: Expr, operands: list[Tensor], out: Tensor, what: str) -> None:
        popops.map_with_output(graph, expr, operands, out, loop.body, f"{name}/{what}")

    slope = sigmoid(_3) * (1.0 - sigmoid(_3))
    open_part = (1.0 - tanh(_2) * tanh(_2)) * (1.0 - sigmoid(_3))
    add(_1 * open_part, [state, candidate, update], to_candidate, "candidate")
    add(_1 * (_4 - tanh(_2)) * slope, [state, candidate, update, before], to_update, "update")
    add(_1 * sigmoid(_2), [to_candidate, reset], to_product, "product")
    add(_1 * _2 * slope, [to_candidate, product, reset], to_reset, "reset")


# -- registry: samples, and the same cell in NumPy -------------------------------------------------


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
    parameters = GruAfterWeights(*weights)
    forward = gru_after_fwd(graph, x, state, parameters, sequence)
    result = gru_after_bwd_with_wu(graph, x, parameters, forward, gradient, sequence)
    return forward.output, result.input, result.state, *result.weights


def _steps(x: np.ndarray, state: np.ndarray, *weights: np.ndarray) -> tuple[np.ndarray, list]:
    inputs, recurrent, biases, own = weights
    outputs, gates = [state], []
    for row in x:
        h = outputs[-1]
        z = [row @ inputs[k] + biases[k] for k in range(3)]
        reset, update = (numpy_sigmoid(z[k] + h @ recurrent[k]) for k in range(2))
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
