"""Recurrent layers, one step after another: RNN, GRU and LSTM."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.table import operator

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    known: dict[str, Activation] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "softsign": F.softsign,
        "softplus": F.softplus,
        "affine": lambda x: _or(alpha, 1.0) * x + _or(beta, 0.0),
        "leakyrelu": lambda x: F.leaky_relu(x, _or(alpha, 0.01)),
        "thresholdedrelu": lambda x: torch.where(x > _or(alpha, 1.0), x, torch.zeros_like(x)),
        "scaledtanh": lambda x: _or(alpha, 1.0) * torch.tanh(_or(beta, 1.0) * x),
        "hardsigmoid": lambda x: (_or(alpha, 0.2) * x + _or(beta, 0.5)).clamp(0, 1),
        "elu": lambda x: F.elu(x, _or(alpha, 1.0)),
    }
    if name.lower() not in known:
        raise ValueError(f"the activation {name!r}")
    return known[name.lower()]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


@dataclass(frozen=True)
class _Layer:
    """What all three have in common: attributes, and the operands of one direction."""

    activations: list[Activation]
    clip: float

    def bounded(self, x: Tensor) -> Tensor:
        return x.clamp(-self.clip, self.clip) if self.clip else x


def _layers(
    names: list[str] | None,
    default: list[str],
    alphas: list[float] | None,
    betas: list[float] | None,
    direction: str,
    clip: float,
) -> list[_Layer]:
    n_directions = 2 if direction == "bidirectional" else 1
    names = names or default * n_directions
    alphas, betas = list(alphas or []), list(betas or [])
    functions = []
    for name in names:
        # Only activations that have such a number take one from the lists.
        alpha = alphas.pop(0) if alphas and name.lower() in _WITH_ALPHA else None
        beta = betas.pop(0) if betas and name.lower() in _WITH_BETA else None
        functions.append(_activation(name, alpha, beta))
    each = len(default)
    return [_Layer(functions[i * each : (i + 1) * each], clip) for i in range(n_directions)]


_WITH_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_WITH_BETA = {"affine", "scaledtanh", "hardsigmoid"}
Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def _run(
    projected: list[Tensor],
    steps: list[Step],
    states: list[list[Tensor]],
    lengths: Tensor | None,
    direction: str,
) -> tuple[Tensor, list[list[Tensor]]]:
    """What inputs [time, batch, gates] give to each direction, through its steps.

    All outputs, and the last states. The products with the inputs are one for all steps.
    """
    outputs, finals = [], []
    for index, (x, step, state) in enumerate(zip(projected, steps, states, strict=True)):
        is_reverse = direction == "reverse" or index == 1
        result: list[Tensor] = []
        values = tuple(state)
        times = range(x.shape[0])
        for time in reversed(times) if is_reverse else times:
            new = step(x[time], values)
            if lengths is not None:
                is_inside = (lengths > time).unsqueeze(1)
                new = tuple(torch.where(is_inside, a, b) for a, b in zip(new, values, strict=True))
                result.append(torch.where(is_inside, new[0], torch.zeros_like(new[0])))
            else:
                result.append(new[0])
            values = new
        outputs.append(torch.stack(result[::-1] if is_reverse else result))
        finals.append(list(values))
    return torch.stack(outputs, 1), [list(column) for column in zip(*finals, strict=True)]


def _results(outputs: Tensor, finals: list[list[Tensor]], layout: int) -> tuple[Tensor, ...]:
    lasts = [torch.stack(final) for final in finals]
    if layout:
        return outputs.permute(2, 0, 1, 3), *(last.transpose(0, 1) for last in lasts)
    return outputs, *lasts


def _initial(
    state: Tensor | None, x: Tensor, n_directions: int, hidden: int, layout: int
) -> list[Tensor]:
    if state is None:
        return [x.new_zeros(x.shape[1], hidden) for _ in range(n_directions)]
    return list(state.transpose(0, 1) if layout else state)


def _projected(x: Tensor, w: Tensor, bias: Tensor | None) -> list[Tensor]:
    """The products of all inputs with the weights of each direction."""
    return [F.linear(x, w[i], None if bias is None else bias[i]) for i in range(w.shape[0])]


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,  # noqa: ARG001 - the weights have it
    layout: int = 0,
    output_sequence: int = 0,  # noqa: ARG001 - of version 1; all outputs are computed
) -> tuple[Tensor, ...]:
    """H = f(x · W + h · R + b)."""
    x = x.transpose(0, 1) if layout else x
    layers = _layers(activations, ["Tanh"], activation_alpha, activation_beta, direction, clip)
    hidden = r.shape[-1]

    def make(i: int, layer: _Layer) -> Step:
        def step(value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            total = value + F.linear(state[0], r[i])
            return (layer.activations[0](layer.bounded(total)),)

        return step

    steps = [make(i, layer) for i, layer in enumerate(layers)]
    states = [[h] for h in _initial(initial_h, x, len(layers), hidden, layout)]
    bias = None if b is None else b[:, :hidden] + b[:, hidden:]
    return _results(*_run(_projected(x, w, bias), steps, states, lengths, direction), layout)


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,  # noqa: ARG001
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    """Gates z and r, then the hidden state; the reset may come before or after the product."""
    x = x.transpose(0, 1) if layout else x
    default = ["Sigmoid", "Tanh"]
    layers = _layers(activations, default, activation_alpha, activation_beta, direction, clip)
    hidden = r.shape[-1]

    def make(i: int, layer: _Layer) -> Step:
        bias_r = None if b is None else b[i, 3 * hidden :]
        gate, out = layer.activations

        def step(value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            before = state[0]
            from_x = value.split(hidden, 1)
            gates_r = None if bias_r is None else bias_r[: 2 * hidden]
            from_h = F.linear(before, r[i, : 2 * hidden], gates_r).split(hidden, 1)
            z = gate(layer.bounded(from_x[0] + from_h[0]))
            reset = gate(layer.bounded(from_x[1] + from_h[1]))
            last_r, last_b = r[i, 2 * hidden :], None if bias_r is None else bias_r[2 * hidden :]
            if linear_before_reset:
                inner = reset * F.linear(before, last_r, last_b)
            else:
                inner = F.linear(reset * before, last_r, last_b)
            new = out(layer.bounded(from_x[2] + inner))
            return ((1 - z) * new + z * before,)

        return step

    steps = [make(i, layer) for i, layer in enumerate(layers)]
    states = [[h] for h in _initial(initial_h, x, len(layers), hidden, layout)]
    projected = _projected(x, w, None if b is None else b[:, : 3 * hidden])
    return _results(*_run(projected, steps, states, lengths, direction), layout)


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,  # noqa: ARG001
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    """Gates i, o, f and the cell; with peepholes, and with one gate for input and forgetting."""
    x = x.transpose(0, 1) if layout else x
    default = ["Sigmoid", "Tanh", "Tanh"]
    layers = _layers(activations, default, activation_alpha, activation_beta, direction, clip)
    hidden = r.shape[-1]

    def make(i: int, layer: _Layer) -> Step:
        peeps = None if p is None else p[i].split(hidden)
        gate, inner, out = layer.activations

        def step(value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            before, cell = state
            total = value + F.linear(before, r[i])
            at_i, at_o, at_f, at_c = total.split(hidden, 1)
            if peeps is not None:
                at_i, at_f = at_i + peeps[0] * cell, at_f + peeps[2] * cell
            enters = gate(layer.bounded(at_i))
            stays = 1 - enters if input_forget else gate(layer.bounded(at_f))
            cell = stays * cell + enters * inner(layer.bounded(at_c))
            at_o = at_o if peeps is None else at_o + peeps[1] * cell
            return gate(layer.bounded(at_o)) * out(cell), cell

        return step

    steps = [make(i, layer) for i, layer in enumerate(layers)]
    hs = _initial(initial_h, x, len(layers), hidden, layout)
    cs = _initial(initial_c, x, len(layers), hidden, layout)
    states = [[h, c] for h, c in zip(hs, cs, strict=True)]
    bias = None if b is None else b[:, : 4 * hidden] + b[:, 4 * hidden :]
    return _results(*_run(_projected(x, w, bias), steps, states, lengths, direction), layout)
