"""Packed sequences of known lengths on tiles against ATen, and the error for unknown ones."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.ir.like_aten import assert_like_aten
from tests.sampling import WIDE
from tremula.ir.errors import CaptureError
from tremula.ir.run.tile_run import run_on_tiles

pytestmark = pytest.mark.slow

LENGTHS = [2, 4, 1, 4]


def packed(net, lengths, x, parameters):
    """Padded outputs, lengths and last states; gradients of the input and of all parameters."""
    names = [name for name, _ in net.named_parameters()]
    leaves = [t.detach().requires_grad_() for t in (x, *parameters)]
    sequence = pack_padded_sequence(leaves[0], lengths, batch_first=True, enforce_sorted=False)
    weights = dict(zip(names, leaves[1:], strict=True))
    output, states = torch.func.functional_call(net, weights, (sequence,))
    padded, result = pad_packed_sequence(output, batch_first=True, total_length=5)
    states = [states] if isinstance(states, torch.Tensor) else list(states)
    total = sum((y * torch.linspace(0, 1, y.numel()).view_as(y)).sum() for y in (padded, *states))
    return [padded, result * 1, *states, *torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize("kind", ["LSTM", *(pytest.param(k, marks=WIDE) for k in ("GRU", "RNN"))])
def test_nets_over_packed_sequences(kind):
    """Two layers in both directions, each sequence as long as it is: values and gradients."""
    torch.manual_seed(1)
    net = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    parameters = [p.detach() for p in net.parameters()]

    def function(x, *parameters):
        return packed(net, LENGTHS, x, parameters)

    assert_like_aten(function, torch.randn(4, 4, 3), *parameters, rtol=1e-4, atol=1e-5)


def test_lengths_of_the_model():
    """A tensor that the model holds or makes is known as well."""
    held = nn.GRU(3, 4)
    parameters = [p.detach() for p in held.parameters()]

    def function(x, *parameters):
        return packed(held, torch.tensor([3, 3, 1]) + torch.tensor([1, 0, 0]), x, parameters)

    assert_like_aten(function, torch.randn(3, 4, 3), *parameters, rtol=1e-4, atol=1e-5)


def test_unknown_lengths():
    """Lengths that are an input are an error that says what to do."""
    with pytest.raises(CaptureError) as error:
        run_on_tiles(
            lambda x, n: pack_padded_sequence(x, n).data,
            torch.randn(4, 3, 2),
            torch.tensor([4, 2, 1]),
        )
    text = str(error.value)
    assert "pack_padded_sequence: the lengths of the sequences are not known" in text
    assert "give the lengths as a list of numbers" in text


def test_unsorted_lengths():
    """PyTorch's own words for lengths that rise."""
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        run_on_tiles(lambda x: pack_padded_sequence(x, [1, 3]).data, torch.randn(3, 2, 2))
