"""LSTM: forward, backward and weight update over sequences [n_steps, n_batches, size].

Gates stand in PopLibs' order, forget, input, candidate, output, unless `cell_order` says otherwise:

    f = σ(x·Wf + h·Uf + bf)     c' = f·c + i·g
    i = σ(x·Wi + h·Ui + bi)     h' = o·tanh(c')
    g = tanh(x·Wg + h·Ug + bg)
    o = σ(x·Wo + h·Uo + bo)
"""

from typing import NamedTuple

from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
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
    gates_of,
    input_gradient,
    joined_gates,
    last_state_gradient,
    missing_intermediates,
    new_input,
    new_state,
    project,
    split_gates,
    weight_gradient,
    zeros,
)
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3, _4, sigmoid, tanh
from tremula.poplibs.registry import PoplibsError

CELL_ORDER = ("forget", "input", "candidate", "output")
N_GATES = len(CELL_ORDER)


class LstmState(NamedTuple):
    """The state between two steps, [n_batches, n_out] each."""

    output: Tensor
    cell: Tensor


class LstmWeights(NamedTuple):
    input: Tensor  # [4, n_in, n_out]
    output: Tensor  # [4, n_out, n_out]
    biases: Tensor  # [4, n_out]


class LstmForward(NamedTuple):
    """The result of a forward pass, and what the backward pass needs of it."""

    output: Tensor  # [n_steps, n_batches, n_out], or the last step's
    cell: Tensor  # after the last step
    outputs: Tensor | None  # [n_steps + 1, …]: before the first step, and after each
    cells: Tensor | None
    gates: Tensor | None  # [n_steps, n_batches, 4 · n_out], before their non-linearities


class LstmBackward(NamedTuple):
    input_gradient: Tensor
    state_gradient: LstmState  # of the initial state
    gate_gradients: Tensor


def create_input(
    graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
    name: str = "",
) -> Tensor:  # fmt: skip
    """Inputs [n_steps, n_batches, n_in], laid out for the product with the input weights."""
    shape = (n_steps, n_batches, n_in)
    return new_input(graph, type, shape, N_GATES * n_out, name or "lstmInput")


def create_initial_state(
    graph: Graph, type: Type | str, n_batches: int, n_out: int, name: str = ""
) -> LstmState:
    name = name or "lstmState"
    return LstmState(*(new_state(graph, type, n_batches, n_out, name) for _ in range(2)))


def create_weights(
    graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
    name: str = "",
) -> LstmWeights:  # fmt: skip
    """Weights laid out for the products of the forward pass."""
    name, n = name or "lstmWeights", N_GATES * n_out
    inputs = create_mat_mul_input_rhs(graph, type, (n_steps * n_batches, n_in), (n_in, n), name)
    outputs = create_mat_mul_input_rhs(graph, type, (n_batches, n_out), (n_out, n), name)
    biases = graph.add_variable(as_type(type), [N_GATES, n_out], f"{name}/biases", mapping="linear")
    return LstmWeights(split_gates(inputs, N_GATES), split_gates(outputs, N_GATES), biases)


def lstm_fwd(
    graph: Graph,
    x: Tensor,
    state: LstmState,
    weights: LstmWeights,
    sequence: Sequence,
    name: str = "",
    *,
    inference_only: bool = False,
    output_full_sequence: bool = True,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> LstmForward:
    """All steps; `output` is every step's or, without `output_full_sequence`, the last one's."""
    name = name or "lstmFwd"
    check_operands("lstm", x, state, weights, N_GATES)
    weights = _in_order(weights, cell_order)
    n_steps, n_batches, _ = x.shape
    gates = project(graph, x, weights.input, weights.biases, sequence, name)
    output = copied(graph, state.output, sequence, f"{name}/output")
    cell = copied(graph, state.cell, sequence, f"{name}/cell")
    recurrent = arranged(
        graph, n_batches, joined_gates(weights.output), sequence, f"{name}/weights"
    )
    outputs = cells = None
    if output_full_sequence or not inference_only:
        outputs = add_states(graph, state.output, n_steps, sequence, f"{name}/outputs")
    if not inference_only:
        cells = add_states(graph, state.cell, n_steps, sequence, f"{name}/cells")
    loop = TimeLoop(graph, n_steps, name)
    z = mat_mul(graph, output, recurrent, loop.body, f"{name}/recurrent")
    popops.map_in_place(graph, _1 + _2, [z, loop.take(gates)], loop.body, f"{name}/sum")
    forget, enter, candidate, leave = gates_of(z, N_GATES)
    new_cell = sigmoid(_2) * _1 + sigmoid(_3) * tanh(_4)
    popops.map_in_place(
        graph, new_cell, [cell, forget, enter, candidate], loop.body, f"{name}/cell"
    )
    new_output = sigmoid(_1) * tanh(_2)
    popops.map_with_output(graph, new_output, [leave, cell], output, loop.body, f"{name}/output")
    if outputs is not None:
        loop.put(outputs, output, is_after=True)
    if cells is not None:
        loop.put(cells, cell, is_after=True)
        loop.put(gates, z)
    loop.finish(sequence)
    result = outputs[1:] if outputs is not None and output_full_sequence else output
    return LstmForward(result, cell, outputs, cells, None if inference_only else gates)


def lstm_bwd(
    graph: Graph,
    weights: LstmWeights,
    forward: LstmForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    last_cell_gradient: Tensor | None = None,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> LstmBackward:
    """Gradients of inputs and initial state, from that of the output."""
    name = name or "lstmBwd"
    if forward.outputs is None or forward.cells is None or forward.gates is None:
        raise missing_intermediates("lstm_bwd")
    check_gradient("lstm_bwd", output_gradient, forward.outputs[1:])
    weights = _in_order(weights, cell_order)
    n_steps, n_batches, n_out = forward.outputs[1:].shape
    type = output_gradient.type
    output = last_state_gradient(graph, output_gradient, sequence, name)
    cell = (
        zeros(graph, type, (n_batches, n_out), sequence, f"{name}/state")
        if last_cell_gradient is None
        else copied(graph, last_cell_gradient, sequence, f"{name}/state")
    )
    gradients = add_sequence(graph, type, forward.gates.shape, f"{name}/gateGradients")
    matrix = joined_gates(weights.output).transpose()
    recurrent = arranged(graph, n_batches, matrix, sequence, f"{name}/weights")
    loop = TimeLoop(graph, n_steps, name, is_backward=True)
    add_own_gradient(loop, output, output_gradient, sequence)
    z = loop.take(forward.gates)
    before, after = loop.take(forward.cells), loop.take(forward.cells, is_after=True)
    new = graph.add_variable(type, (n_batches, N_GATES * n_out), f"{name}/gates", mapping="linear")
    _add_gate_gradients(graph, (output, cell), z, (before, after), new, loop, name)
    loop.put(gradients, new)
    product = mat_mul(graph, new, recurrent, loop.body, f"{name}/recurrent")
    loop.body.add(Copy(product, output))
    loop.finish(sequence)
    inputs = input_gradient(graph, gradients, weights.input, sequence, name)
    return LstmBackward(inputs, LstmState(output, cell), gradients)


def _add_gate_gradients(
    graph: Graph, state: tuple[Tensor, Tensor], z: Tensor, cells: tuple[Tensor, Tensor],
    new: Tensor, loop: TimeLoop, name: str,
) -> None:  # fmt: skip
    """Write the gradients of a step's gates to `new`; the cell's becomes the one before it."""
    output, cell = state
    before, after = cells
    forget, enter, candidate, leave = gates_of(z, N_GATES)
    to_forget, to_enter, to_candidate, to_leave = gates_of(new, N_GATES)
    slope = sigmoid(_3) * (1.0 - sigmoid(_3))
    for what, expr, operands, out in (
        ("leave", _1 * tanh(_2) * slope, [output, after, leave], to_leave),
        ("cell", _1 + _2 * sigmoid(_3) * (1.0 - tanh(_4) * tanh(_4)),
         [cell, output, leave, after], cell),
        ("forget", _1 * _2 * slope, [cell, before, forget], to_forget),
        ("enter", _1 * tanh(_2) * slope, [cell, candidate, enter], to_enter),
        ("candidate", _1 * sigmoid(_2) * (1.0 - tanh(_3) * tanh(_3)), [cell, enter, candidate],
         to_candidate),
        ("before", _1 * sigmoid(_2), [cell, forget], cell),
    ):  # fmt: skip
        add = popops.map_in_place if out is cell else popops.map_with_output
        arguments = [operands] if out is cell else [operands, out]
        add(graph, expr, *arguments, loop.body, f"{name}/{what}")  # pyright: ignore[reportCallIssue]


def lstm_wu(
    graph: Graph,
    x: Tensor,
    forward: LstmForward,
    backward: LstmBackward,
    sequence: Sequence,
    name: str = "",
    *,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> LstmWeights:
    """Gradients of all weights, from those of the gates."""
    name = name or "lstmWu"
    if forward.outputs is None:
        raise missing_intermediates("lstm_wu")
    gates, before = backward.gate_gradients, forward.outputs[:-1]
    inputs = weight_gradient(graph, x, gates, N_GATES, sequence, name)
    outputs = weight_gradient(graph, before, gates, N_GATES, sequence, name)
    biases = bias_gradient(graph, gates, N_GATES, sequence, name)
    return _in_order(LstmWeights(inputs, outputs, biases), cell_order, is_back=True)


def lstm_bwd_with_wu(
    graph: Graph,
    x: Tensor,
    weights: LstmWeights,
    forward: LstmForward,
    output_gradient: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    last_cell_gradient: Tensor | None = None,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> tuple[LstmBackward, LstmWeights]:
    """Gradients of inputs, initial state and weights."""
    backward = lstm_bwd(
        graph, weights, forward, output_gradient, sequence, name,
        last_cell_gradient=last_cell_gradient, cell_order=cell_order,
    )  # fmt: skip
    update = lstm_wu(graph, x, forward, backward, sequence, name, cell_order=cell_order)
    return backward, update


def _in_order(
    weights: LstmWeights, cell_order: tuple[str, ...], *, is_back: bool = False
) -> LstmWeights:
    """Weights whose gates stand in `cell_order`, in our order; or back."""
    if tuple(cell_order) == CELL_ORDER:
        return weights
    if sorted(cell_order) != sorted(CELL_ORDER):
        raise PoplibsError(
            f"lstm got cell_order {list(cell_order)}, expected each of {list(CELL_ORDER)} once.",
            source=user_source(),
            hint='for example cell_order=("input", "forget", "candidate", "output")',
        )
    pairs = (CELL_ORDER, cell_order) if is_back else (cell_order, CELL_ORDER)
    places = [pairs[0].index(gate) for gate in pairs[1]]
    return LstmWeights(*(concat([w[p : p + 1] for p in places]) for w in weights))
