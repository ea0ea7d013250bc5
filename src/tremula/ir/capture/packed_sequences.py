"""Packed sequences of known lengths: nets run over steps that equally many sequences have.

A packed tensor holds step after step, each with a row for every sequence that is that long; so the
steps with equally many rows are a view [steps, sequences, …] of it, and a net runs over one such
segment after the other, with the states of those that continue.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, groupby

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tremula.ir.errors import CaptureError
from tremula.ir.ops import recurrent as recurrent_ops
from tremula.ir.origin import model_line
from tremula.ir.recorder import known_value
from tremula.ir.recording import Recording

Segment = tuple[int, int]  # steps, sequences


def _known(state: Recording, tensor: Tensor) -> list[int]:
    value = known_value(state.recorder, tensor)
    if value is None:
        raise CaptureError(
            "pack_padded_sequence: the lengths of the sequences are not known while a model is"
            " recorded, and its shapes depend on them.",
            source=model_line(state.source_excludes),
            hint="give the lengths as a list of numbers, or run the net over padded sequences and"
            " mask what follows their ends",
        )
    with _disable_current_modes():
        return value.tolist()


def pack(
    state: Recording, _func: Callable, x: Tensor, lengths: Tensor, batch_first: bool
) -> tuple[Tensor, Tensor]:
    """The rows of all steps, and how many each step has."""
    n_steps = _known(state, lengths)
    if n_steps != sorted(n_steps, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You"
            " can pass `enforce_sorted=False` to pack_padded_sequence to sort automatically."
        )
    x = x.transpose(0, 1) if batch_first else x
    sizes = [sum(n > step for n in n_steps) for step in range(n_steps[0])]
    data = torch.cat([x[step, :n] for step, n in enumerate(sizes)])
    with _disable_current_modes():  # numbers of the host, as in PyTorch
        return data, torch.tensor(sizes)


def pad(
    state: Recording, _func: Callable, data: Tensor, sizes: Tensor, batch_first: bool,
    value: float, n_total: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """[steps, sequences, …] with `value` behind the end of each sequence, and the lengths."""
    of_steps = _known(state, sizes)
    rest = [0, 0] * (data.dim() - 1)
    padded = torch.cat(
        [
            F.pad(rows, [*rest, 0, of_steps[0] - rows.shape[1]], value=value)
            for rows in _split(data, of_steps)
        ]
    )
    padded = F.pad(padded, [*rest, 0, 0, 0, n_total - len(of_steps)], value=value)
    lengths = [sum(n > place for n in of_steps) for place in range(of_steps[0])]
    return padded.transpose(0, 1) if batch_first else padded, torch.tensor(lengths)


def _segments(sizes: list[int]) -> list[Segment]:
    return [(len(list(steps)), n) for n, steps in groupby(sizes)]


def _split(data: Tensor, sizes: list[int]) -> Iterator[Tensor]:
    """[steps, sequences, …] of each segment."""
    start = 0
    for n_steps, n in _segments(sizes):
        yield data.narrow(0, start, n_steps * n).unflatten(0, (n_steps, n))
        start += n_steps * n


# -- nets ------------------------------------------------------------------------------------------


def is_packed_net(func: Callable, args: tuple) -> bool:
    """Whether a call is one of a net over packed sequences."""
    name = getattr(func, "__name__", "")
    return name in recurrent_ops.KINDS and len(args) == 9 and isinstance(args[3], list | tuple)


def run_net(state: Recording, func: Callable, args: tuple) -> tuple[Tensor, ...]:
    data, sizes, states, weights, has_biases, n_layers, dropout, training, bidirectional = args
    of_steps = _known(state, sizes)
    states = [states] if isinstance(states, Tensor) else list(states)
    _refuse_projection(state, states, weights)
    states, weights = ([t.to(data.dtype) for t in tensors] for tensors in (states, weights))
    n_ways = 2 if bidirectional else 1
    each, ends = len(weights) // (n_layers * n_ways), []
    for layer in range(n_layers):
        if layer and dropout and training:
            data = torch.dropout(data, dropout, True)
        outputs = []
        for way in range(n_ways):
            place = layer * n_ways + way
            net = _Net(func.__name__, weights[place * each : (place + 1) * each], has_biases)
            output, last = net.run(data, of_steps, [s[place : place + 1] for s in states], way == 1)
            outputs.append(output)
            ends.append(last)
        data = torch.cat(outputs, -1) if bidirectional else outputs[0]
    return (data, *(torch.cat(of_all) for of_all in zip(*ends, strict=True)))


def _refuse_projection(state: Recording, states: list[Tensor], weights: list[Tensor]) -> None:
    if len(states) > 1 and states[0].shape[-1] != states[1].shape[-1]:
        raise CaptureError(
            f"an LSTM over packed sequences has no projection, got proj_size={weights[1].shape[1]}",
            source=model_line(state.source_excludes),
            hint="leave proj_size out and add a Linear layer",
        )


class _Net:
    """One layer in one direction."""

    def __init__(self, kind: str, weights: list[Tensor], has_biases: bool):
        self.kind, self.weights, self.has_biases = kind, weights, has_biases

    def run(
        self, data: Tensor, sizes: list[int], states: list[Tensor], is_reverse: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Packed outputs, and the states after the last step of each sequence."""
        order = torch.tensor(_reversed_rows(sizes)) if is_reverse else None
        if order is not None:
            data = data.index_select(0, order)
        outputs, ended = [], []
        next_sizes = [*(n for _, n in _segments(sizes)[1:]), 0]
        for x, n_next in zip(_split(data, sizes), next_sizes, strict=True):
            output, *states = recurrent_ops.call(
                self.kind, x, states, self.weights, self.has_biases, 1, False, False
            )
            outputs.append(output.flatten(0, 1))
            ended.append([s[:, n_next:] for s in states])
            states = [s[:, :n_next] for s in states]
        packed = torch.cat(outputs)
        packed = packed if order is None else packed.index_select(0, order)
        last = [torch.cat(parts[::-1], 1) for parts in zip(*ended, strict=True)]
        return packed, last


def _reversed_rows(sizes: list[int]) -> list[int]:
    """Which row each packed row takes if every sequence is turned round."""
    starts = [0, *accumulate(sizes)]
    lengths = [sum(n > place for n in sizes) for place in range(sizes[0])]
    return [
        starts[lengths[place] - 1 - step] + place
        for step, n in enumerate(sizes)
        for place in range(n)
    ]
