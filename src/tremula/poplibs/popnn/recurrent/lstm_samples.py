"""The registry's entries of the LSTM: samples, and the same cell in NumPy."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popnn.recurrent.cell_samples import (
    operands,
    random_gradient,
    register_cell,
    numpy_sigmoid,
)
from tremula.poplibs.popnn.recurrent.lstm import (
    CELL_ORDER,
    LstmState,
    LstmWeights,
    lstm_bwd_with_wu,
    lstm_fwd,
)
from tremula.poplibs.registry import ErrorCase, Sample

INPUT_FIRST = ("input", "forget", "candidate", "output")


def forward_of_tensors(
    graph: Graph, x: Tensor, output: Tensor, cell: Tensor, *weights: Tensor, sequence: Sequence,
    **options: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """lstm_fwd with all operands in a row: (output, cell)."""
    found = lstm_fwd(
        graph, x, LstmState(output, cell), LstmWeights(*weights), sequence, **options  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    return found.output, found.cell


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
        forget, enter, candidate, leave = numpy_sigmoid(z[0]), numpy_sigmoid(z[1]), np.tanh(z[2]), numpy_sigmoid(z[3])
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
    yield Sample(operands(type, rng, (5, 2, 3, 7), 4, 2), {"cell_order": INPUT_FIRST})
    options = {"inference_only": True, "output_full_sequence": False}
    yield Sample(operands(type, rng, (4, 3, 8, 6), 4, 2), options)


def _training_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sizes, is_whole, order in (((3, 2, 5, 4), True, INPUT_FIRST), ((4, 3, 2, 6), False, None)):
        given = operands(type, rng, sizes, 4, 2)
        of_output = random_gradient(type, rng, given, is_whole=is_whole)
        of_cell = random_gradient(type, rng, given, is_whole=False)
        yield Sample((*given, of_output, of_cell), {"cell_order": order} if order else {})


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
