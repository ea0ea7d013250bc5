"""Lowerings of whole recurrent nets: popnn's cells, layer by layer and direction by direction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import operand
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import popops
from tremula.poplibs.popnn.recurrent import gru_reset_after, lstm, rnn

_N_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclass(frozen=True)
class Net:
    """The settings of a net, and the place it is built at."""

    tiles: Tiles
    kind: str
    has_biases: bool
    n_layers: int
    bidirectional: bool
    batch_first: bool
    needs: list[bool]

    @property
    def n_ways(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def n_gates(self) -> int:
        return _N_GATES[self.kind]

    @property
    def is_inference(self) -> bool:
        return not any(self.needs)

    def cells(self) -> list[tuple[int, int]]:
        return [(layer, way) for layer in range(self.n_layers) for way in range(self.n_ways)]

    def name(self, layer: int, way: int) -> str:
        return f"{self.tiles.name}/layer_{layer}{'_reverse' if way else ''}"


@dataclass
class Cell:
    """One layer in one direction: its weights in popnn's form, and what its forward pass kept."""

    net: Net
    name: str
    weights: Any
    x: Tensor | None = None
    forward: Any = None
    gradients: list[Tensor] = field(default_factory=list)  # of PyTorch's weights, in its order

    @property
    def non_linearity(self) -> str:
        """The activation of a vanilla net: TANH for rnn_tanh."""
        return self.net.kind.removeprefix("rnn_").upper()

    def run(self, x: Tensor, states: list[Tensor]) -> list[Tensor]:
        """Outputs of all steps, and the last states."""
        self.x = x
        graph, sequence, kind = self.net.tiles.graph, self.net.tiles.sequence, self.net.kind
        options: dict[str, Any] = {"inference_only": self.net.is_inference}
        if kind == "lstm":
            self.forward = lstm.lstm_fwd(
                graph, x, lstm.LstmState(*states), self.weights, sequence, self.name,
                cell_order=lstm.PYTORCH_ORDER, **options,
            )  # fmt: skip
            return [self.forward.output, self.forward.output[-1], self.forward.cell]
        if kind == "gru":
            run = gru_reset_after.gru_after_fwd
        else:
            run, options["non_linearity"] = rnn.rnn_fwd, self.non_linearity
        self.forward = run(graph, x, states[0], self.weights, sequence, self.name, **options)
        return [self.forward.output, self.forward.output[-1]]

    def run_backward(self, gradient: Tensor, of_cell: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Gradients of the inputs and of the initial states; those of the weights are kept."""
        graph, sequence, kind = self.net.tiles.graph, self.net.tiles.sequence, self.net.kind
        assert self.x is not None, "the forward pass runs first"
        name = f"{self.name}/bwd"
        operands = (graph, self.x, self.weights, self.forward, gradient, sequence, name)
        if kind == "gru":
            result = gru_reset_after.gru_after_bwd_with_wu(*operands)
            self.gradients = self._gru_gradients(result.weights)
            return result.input, [result.state]
        if kind == "lstm":
            backward, update = lstm.lstm_bwd_with_wu(
                *operands, last_cell_gradient=of_cell, cell_order=lstm.PYTORCH_ORDER
            )
            states = list(backward.state_gradient)
        else:
            backward, update = rnn.rnn_bwd_with_wu(*operands, non_linearity=self.non_linearity)
            states = [backward.state_gradient]
        self.gradients = [_as_torch(update.input), _as_torch(update.output)]
        self.gradients += [update.biases.flatten()] * 2  # they are only ever added
        return backward.input_gradient, states

    def _gru_gradients(self, update: gru_reset_after.GruAfterWeights) -> list[Tensor]:
        of_recurrent = concat([update.biases[:2].flatten(), update.candidate_bias])
        return [
            _as_torch(update.input), _as_torch(update.output), update.biases.flatten(),
            of_recurrent,
        ]  # fmt: skip


def _as_popnn(weights: Tensor, n_gates: int) -> Tensor:
    """[gates · out, in] as [gates, in, out]."""
    n_out, n_in = weights.shape[0] // n_gates, weights.shape[1]
    return weights.reshape([n_gates, n_out, n_in]).dim_shuffle([0, 2, 1])


def _as_torch(weights: Tensor) -> Tensor:
    n_gates, n_in, n_out = weights.shape
    return weights.dim_shuffle([0, 2, 1]).reshape([n_gates * n_out, n_in])


def _cell(net: Net, place: tuple[int, int], weights: list[Tensor]) -> Cell:
    tiles, n_gates, name = net.tiles, net.n_gates, net.name(*place)
    inputs, recurrent = (_as_popnn(w, n_gates) for w in weights[:2])
    shape = [n_gates, inputs.shape[2]]
    if not net.has_biases:
        nothing = tiles.new(tuple(shape), inputs.type, f"{name}/biases")
        popops.zero(tiles.graph, nothing, tiles.sequence, f"{name}/biases")
        input_bias, recurrent_bias = nothing, nothing
    else:
        input_bias, recurrent_bias = (b.reshape(shape) for b in weights[2:])
    add: Callable = popops.add
    if net.kind == "gru":
        both = input_bias[:2]
        if net.has_biases:
            both = add(tiles.graph, both, recurrent_bias[:2], tiles.sequence, f"{name}/biases")
        biases = concat([both, input_bias[2:]])
        made = gru_reset_after.GruAfterWeights(inputs, recurrent, biases, recurrent_bias[2])
    else:
        biases = input_bias
        if net.has_biases:
            biases = add(tiles.graph, input_bias, recurrent_bias, tiles.sequence, f"{name}/biases")
        form = lstm.LstmWeights if net.kind == "lstm" else rnn.RnnWeights
        made = form(inputs, recurrent, biases)
    return Cell(net, name, made)


@lowers("tremula::recurrent", calls="popnn.lstm, popnn.gru_reset_after, popnn.rnn")
def recurrent(
    tiles: Tiles, x: Tensor, states: list[Tensor], weights: list[Tensor], *how
) -> tuple[Tensor, ...]:
    """Outputs, last states, last cells; tiles have no tape, the cells are remembered."""
    net = Net(tiles, *how)
    x = _steps_first(net, x)
    each = len(weights) // (net.n_layers * net.n_ways)
    cells: dict[tuple[int, int], Cell] = {}
    ends: list[list[Tensor]] = []
    for layer in range(net.n_layers):
        outputs = []
        for way in range(net.n_ways):
            k = layer * net.n_ways + way
            cell = cells[layer, way] = _cell(net, (layer, way), weights[k * each : (k + 1) * each])
            output, *last = cell.run(x.reverse(0) if way else x, [s[k] for s in states])
            outputs.append(output.reverse(0) if way else output)
            ends.append(last)
        x = concat(outputs, 2)
    tiles.shared["recurrent", tiles.node.name] = cells
    last = [concat([t.expand([0]) for t in of_kind]) for of_kind in zip(*ends, strict=True)]
    if net.kind != "lstm":
        last.append(_nothing(tiles, x))
    return (_steps_first(net, x), *last, _nothing(tiles, x))


def _nothing(tiles: Tiles, like: Tensor) -> Tensor:
    return tiles.new((0,), like.type)


def _steps_first(net: Net, x: Tensor) -> Tensor:
    """[steps, batch, …] of what is [batch, steps, …] if the net says so; and back."""
    return x.dim_shuffle([1, 0, 2]) if net.batch_first else x


@lowers("tremula::recurrent_backward", calls="popnn.lstm, popnn.gru_reset_after, popnn.rnn")
def recurrent_backward(
    tiles: Tiles, of_output: Tensor | None, of_states: Tensor | None, of_cells: Tensor | None,
    _tape: Tensor, _results: list[Tensor], _x: Tensor, states: list[Tensor], _weights: list[Tensor],
    *how,
) -> list[Tensor]:  # fmt: skip
    net = Net(tiles, *how)
    cells = tiles.shared["recurrent", operand(operand(tiles.node, 3)).name]
    gradient = None if of_output is None else _steps_first(net, of_output)
    n_out = states[0].shape[2]
    state_gradients: dict[int, list[Tensor]] = {}
    for layer in reversed(range(net.n_layers)):
        parts = []
        for way in range(net.n_ways):
            k, cell = layer * net.n_ways + way, cells[layer, way]
            cell.net = net
            part = None if gradient is None else gradient[:, :, way * n_out : (way + 1) * n_out]
            part = part.reverse(0) if part is not None and way else part
            part = _with_last(cell, part, None if of_states is None else of_states[k])
            of_x, state_gradients[k] = cell.run_backward(
                part, None if of_cells is None else of_cells[k]
            )
            parts.append(of_x.reverse(0) if way else of_x)
        gradient = parts[0]
        if net.bidirectional:
            forth, back = parts
            gradient = popops.add(
                tiles.graph, forth, back, tiles.sequence, f"{tiles.name}/both_ways"
            )
    assert gradient is not None, "a net has layers"
    return _wanted(net, gradient, state_gradients, cells)


def _with_last(cell: Cell, gradient: Tensor | None, of_last: Tensor | None) -> Tensor:
    """The gradient of all outputs, of which the last is also the last state; or of that alone."""
    tiles = cell.net.tiles
    if gradient is None:
        return _zero_of_last(cell) if of_last is None else of_last
    if of_last is None:
        return gradient
    last = popops.add(tiles.graph, gradient[-1], of_last, tiles.sequence, f"{cell.name}/last")
    return concat([gradient[:-1], last.expand([0])])


def _zero_of_last(cell: Cell) -> Tensor:
    tiles, output, name = cell.net.tiles, cell.forward.output, f"{cell.name}/zero"
    nothing = tiles.new(tuple(output.shape[1:]), output.type, name)
    popops.zero(tiles.graph, nothing, tiles.sequence, name)
    return nothing


def _wanted(
    net: Net, of_x: Tensor, of_states: dict[int, list[Tensor]], cells: dict[tuple[int, int], Cell]
) -> list[Tensor]:
    """Gradients in the order of the operands, those that are requested."""
    by_kind = zip(*(of_states[k] for k in sorted(of_states)), strict=True)
    result = [_steps_first(net, of_x), *(concat([t.expand([0]) for t in kind]) for kind in by_kind)]
    for place in net.cells():
        result += cells[place].gradients[: 4 if net.has_biases else 2]
    return [g for g, need in zip(result, net.needs, strict=True) if need]
