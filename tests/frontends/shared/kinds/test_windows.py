"""Windows: pads and counts against a loop that moves the window."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.frontends.shared.kinds.windows import Window, average_pool, conv_transpose, max_pool

WINDOWS = st.tuples(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 2),
    st.sampled_from([(0, 0), (1, 1), (2, 0), (0, 1)]), st.booleans(),
)  # fmt: skip


def _by_hand(line, kernel, stride, dilation, pads, is_ceil):
    """The elements of each window of a line; those of padding are left out.

    Rounded up, the last window may be partial, unless it begins in the padding at the end.
    """
    span, size = dilation * (kernel - 1) + 1, len(line)
    start, result = -pads[0], []
    end = size + pads[1]
    while start + span <= end or (is_ceil and start + span < end + stride and start < size):
        inside = [start + i * dilation for i in range(kernel)]
        result.append([line[i] for i in inside if 0 <= i < size])
        start += stride
    return result


@settings(max_examples=60, deadline=None)
@given(window=WINDOWS, size=st.integers(4, 9))
def test_pools_move_their_window(window, size):
    """Means and maxima are those of the window's elements at each of its positions."""
    kernel, stride, dilation, pads, is_ceil = window
    line = torch.arange(size, dtype=torch.float32).sin()
    groups = _by_hand(line.tolist(), kernel, stride, dilation, pads, is_ceil)
    if not groups or not all(groups):  # no window, or one of padding only
        return
    t, how = line.reshape(1, 1, -1), Window([stride], [dilation], list(pads))
    mean = average_pool(t, [kernel], how, is_ceil=is_ceil, counts_pads=False)
    largest = max_pool(t, [kernel], how, is_ceil=is_ceil).values
    torch.testing.assert_close(mean[0, 0], torch.tensor([sum(g) / len(g) for g in groups]))
    torch.testing.assert_close(largest[0, 0], torch.tensor([max(g) for g in groups]))


@pytest.mark.parametrize(
    ("auto_pad", "begin"), [("NOTSET", 1), ("SAME_LOWER", 1), ("SAME_UPPER", 0)]
)
def test_a_transposed_convolution_cuts_the_odd_element(auto_pad, begin):
    """For an output shape, ONNX cuts the odd element at the end only for SAME_UPPER."""
    t, weight = torch.arange(1.0, 4.0).reshape(1, 1, 3), torch.ones(1, 1, 2)
    whole = conv_transpose(t, weight, None, Window())
    cut = conv_transpose(t, weight, None, Window(auto_pad=auto_pad), output_shape=[3])
    torch.testing.assert_close(cut, whole[..., begin : begin + 3])
