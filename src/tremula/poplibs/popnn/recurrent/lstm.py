"""LSTM: forward, backward and weight update over sequences [n_steps, n_batches, size].

Gates stand in PopLibs' order, forget, input, candidate, output, unless `cell_order` says otherwise:

    f = σ(x·Wf + h·Uf + bf)     c' = f·c + i·g
    i = σ(x·Wi + h·Ui + bi)     h' = o·tanh(c')
    g = tanh(x·Wg + h·Ug + bg)
    o = σ(x·Wo + h·Uo + bo)
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import mat_mul
from tremula.poplibs.popnn.recurrent.cell_samples import (
    numpy_sigmoid,
    operands,
    random_gradient,
    register_cell,
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
    zeros,
)
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3, _4, sigmoid, tanh
from tremula.poplibs.registry import ErrorCase, PoplibsError, Sample

CELL_ORDER = ("forget", "input", "candidate", "output")
PYTORCH_ORDER = ("input", "forget", "candidate", "output")
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


create_input = input_creator(N_GATES, "lstmInput")
create_weights = weights_creator(LstmWeights, (N_GATES,), "lstmWeights")
_create_state = state_creator("lstmState")


def create_initial_state(
    graph: Graph, type: Type | str, n_batches: int, n_out: int, name: str = ""
) -> LstmState:
    """Output and cell before the first step."""
    return LstmState(*(_create_state(graph, type, n_batches, n_out, name) for _ in range(2)))


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
    for what, expr, tensors, out in (
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
        arguments = [tensors] if out is cell else [tensors, out]
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


# -- registry: samples, and the same cell in NumPy -------------------------------------------------


def forward_of_tensors(
    graph: Graph, x: Tensor, output: Tensor, cell: Tensor, *weights: Tensor, sequence: Sequence,
    **options: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """lstm_fwd with all operands in a row: (output, cell)."""
    result = lstm_fwd(
        graph, x, LstmState(output, cell), LstmWeights(*weights), sequence, **options  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    return result.output, result.cell


def training_of_tensors(  # noqa: PLR0913, PLR0917 - all operands in a row
    graph: Graph, x: Tensor, output: Tensor, cell: Tensor, inputs: Tensor, outputs: Tensor,
    biases: Tensor, gradient: Tensor, cell_gradient: Tensor, *, sequence: Sequence,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(Output, gradients of x, output, cell and weights) of lstm_fwd and lstm_bwd_with_wu."""
    weights = LstmWeights(inputs, outputs, biases)
    forward = lstm_fwd(
        graph, x, LstmState(output, cell), weights, sequence,
        output_full_sequence=gradient.rank == 3, cell_order=cell_order,
    )  # fmt: skip
    backward, update = lstm_bwd_with_wu(
        graph, x, weights, forward, gradient, sequence,
        last_cell_gradient=cell_gradient, cell_order=cell_order,
    )  # fmt: skip
    return forward.output, backward.input_gradient, *backward.state_gradient, *update


def _ordered(weights: np.ndarray, order: tuple[str, ...], *, is_back: bool = False) -> np.ndarray:
    pairs = (CELL_ORDER, order) if is_back else (order, CELL_ORDER)
    return weights[[pairs[0].index(gate) for gate in pairs[1]]]


def forward_reference(
    x: np.ndarray, output: np.ndarray, cell: np.ndarray, *weights: np.ndarray
) -> tuple[np.ndarray, ...]:
    """(Outputs, cells, activations of the gates), states before the first step included."""
    inputs, recurrent, biases = weights
    outputs, cells, gates = [output], [cell], []
    for row in x:
        z = [row @ inputs[k] + outputs[-1] @ recurrent[k] + biases[k] for k in range(4)]
        forget, enter, leave = (numpy_sigmoid(z[k]) for k in (0, 1, 3))
        candidate = np.tanh(z[2])
        cells.append(forget * cells[-1] + enter * candidate)
        outputs.append(leave * np.tanh(cells[-1]))
        gates.append((forget, enter, candidate, leave))
    return np.array(outputs), np.array(cells), np.array(gates)


def _forward(
    *arrays: np.ndarray, output_full_sequence: bool = True, inference_only: bool = False,
    cell_order: tuple[str, ...] = CELL_ORDER,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    del inference_only
    wide = [a.astype(np.float64) for a in arrays]
    wide[3:] = [_ordered(w, cell_order) for w in wide[3:]]
    outputs, cells, _ = forward_reference(*wide)
    result = outputs[1:] if output_full_sequence else outputs[-1]
    type = arrays[0].dtype
    return result.astype(type), cells[-1].astype(type)


def _training(
    *arrays: np.ndarray, cell_order: tuple[str, ...] = CELL_ORDER
) -> tuple[np.ndarray, ...]:
    x, output, cell, *weights, gradient, cell_gradient = (a.astype(np.float64) for a in arrays)
    inputs, recurrent, biases = (_ordered(w, cell_order) for w in weights)
    outputs, cells, gates = forward_reference(x, output, cell, inputs, recurrent, biases)
    is_whole = gradient.ndim == 3
    to_output, to_cell = np.zeros_like(output) if is_whole else gradient, cell_gradient
    to_x = np.zeros_like(x)
    updates = [np.zeros_like(w) for w in (inputs, recurrent, biases)]
    for t in reversed(range(len(x))):
        to_output = to_output + gradient[t] if is_whole else to_output
        forget, enter, candidate, leave = gates[t]
        root = np.tanh(cells[t + 1])
        to_cell = to_cell + to_output * leave * (1 - root**2)
        to_gates = (
            to_cell * cells[t] * forget * (1 - forget),
            to_cell * candidate * enter * (1 - enter),
            to_cell * enter * (1 - candidate**2),
            to_output * root * leave * (1 - leave),
        )
        to_cell = to_cell * forget
        to_output = np.sum([g @ recurrent[k].T for k, g in enumerate(to_gates)], 0)
        for k, g in enumerate(to_gates):
            to_x[t] += g @ inputs[k].T
            updates[0][k] += x[t].T @ g
            updates[1][k] += outputs[t].T @ g
            updates[2][k] += g.sum(0)
    updates = [_ordered(u, cell_order, is_back=True) for u in updates]
    result = outputs[1:] if is_whole else outputs[-1]
    return tuple(a.astype(arrays[0].dtype) for a in (result, to_x, to_output, to_cell, *updates))


def _forward_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(operands(type, rng, (1, 1, 1, 1), 4, 2))
    yield Sample(operands(type, rng, (5, 2, 3, 7), 4, 2), {"cell_order": PYTORCH_ORDER})
    options = {"inference_only": True, "output_full_sequence": False}
    yield Sample(operands(type, rng, (4, 3, 8, 6), 4, 2), options)


def _training_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sizes, is_whole, order in (
        ((3, 2, 5, 4), True, PYTORCH_ORDER),
        ((4, 3, 2, 6), False, None),
    ):
        inputs = operands(type, rng, sizes, 4, 2)
        of_output = random_gradient(type, rng, inputs, is_whole=is_whole)
        of_cell = random_gradient(type, rng, inputs, is_whole=False)
        yield Sample((*inputs, of_output, of_cell), {"cell_order": order} if order else {})


_GOOD = operands(FLOAT, np.random.default_rng(0), (2, 1, 2, 3), 4, 2)

register_cell(
    "popnn.lstm.lstm_fwd",
    "LSTM over a sequence: outputs and the last cell state.",
    forward_of_tensors,
    _forward,
    _forward_samples,
    ErrorCase(Sample((_GOOD[0][0], *_GOOD[1:])), "lstm expected x [n_steps, n_batches, n_in]"),
    ErrorCase(Sample((*_GOOD[:5], _GOOD[5].astype(np.float16))), "all operands alike, got float"),
    ErrorCase(Sample(_GOOD, {"cell_order": ("input",) * 4}), "expected each of ['forget',"),
)
register_cell(
    "popnn.lstm.lstm_bwd_with_wu",
    "LSTM over a sequence: gradients of inputs, initial state and weights.",
    training_of_tensors,
    _training,
    _training_samples,
    ErrorCase(
        Sample((*_GOOD, np.ones((3, 1, 3), np.float32), _GOOD[2])),
        "lstm_bwd expected an output gradient of float [2, 1, 3] or [1, 3], got float",
    ),
)
