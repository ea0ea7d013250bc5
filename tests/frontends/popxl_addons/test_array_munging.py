"""Host arrays for replicas: splits and their inverses, repeats, padding, inputs of groups."""

import numpy as np
import pytest

from popxl_addons import array_munging as munging

X = np.arange(24).reshape(4, 6)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_unsharding_undoes_sharding(axis):
    """Along any axis, also counted from the end."""
    parts = munging.shard(X, 2, axis)
    np.testing.assert_array_equal(munging.unshard(parts, axis), X)
    np.testing.assert_array_equal(parts[1], np.split(X, 2, axis)[1])


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (-2, -1)])
def test_two_axes(first, second):
    """Shards of the first axis are outermost, and unsharding joins both."""
    parts = munging.shard2D(X, 2, 2, first, second)
    np.testing.assert_array_equal(parts[1], munging.split2D(X, 2, 2, first, second)[0][1])
    np.testing.assert_array_equal(munging.unshard2D(parts, 2, 2, first, second), X)


def test_repeats():
    """A new axis, an axis that is there, and shards: in turn or each in its place."""
    x = np.arange(4).reshape(2, 2)
    assert munging.repeat_axis(x, 2, 1).tolist() == [[0, 1, 0, 1], [2, 3, 2, 3]]
    assert munging.repeat_axis(x, 2, -2).tolist() == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert munging.repeat(x, 2, 1).tolist() == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]
    assert munging.repeat(x, 2).tolist() == [x.tolist(), x.tolist()]
    numbers = np.arange(4)
    assert munging.repeat_shard(numbers, 3, 2, 0).tolist() == [[0, 1], [2, 3]] * 3
    strided = munging.repeat_shard(numbers, 3, 2, 0, "strided")
    assert strided.tolist() == [[0, 1]] * 3 + [[2, 3]] * 3
    with pytest.raises(ValueError, match="'contiguous' or 'strided'"):
        munging.repeat_shard(numbers, 2, 2, 0, "other")


@pytest.mark.parametrize(
    ("tp", "rf", "expected"),
    [(1, 2, [[0, 1], [2, 3]]), (2, 2, [[0, 0], [1, 1], [2, 2], [3, 3]]), (1, 4, [0, 1, 2, 3])],
)
def test_inputs_of_tensor_parallel_groups(tp, rf, expected):
    """Each sample goes to all of a group; outputs are read back as samples."""
    rows = munging.tensor_parallel_input(np.arange(4), tp, rf)
    assert rows.tolist() == expected
    result = munging.tensor_parallel_output(rows, 4 * tp // rf, tp, rf, ())
    assert result.tolist() == [0, 1, 2, 3]


def test_members_of_a_group_may_differ():
    """`repeat_fn` changes the copy of each member; outputs may be kept for all of them."""
    rows = munging.tensor_parallel_input(np.arange(4), 2, 4, lambda x, i: x - 10 * i)
    assert rows.tolist() == [[0, -10, 1, -9], [2, -8, 3, -7]]
    result = munging.tensor_parallel_output(rows, 2, 2, 4, (), tp_identical=False)
    assert result.tolist() == [[0, -10], [1, -9], [2, -8], [3, -7]]
    short = munging.tensor_parallel_output(rows, 2, 2, 4, (), true_num_host_transfers=1)
    assert short.tolist() == [0, 1]
    with pytest.raises(ValueError, match="tp=3"):
        munging.tensor_parallel_input(np.arange(4), 3, 4)
    with pytest.raises(ValueError, match="tp=0"):
        munging.tensor_parallel_input(np.arange(4), 0, 4)


def test_padding_and_squeezing():
    """Axes are filled up to a length; only axes of length one are dropped."""
    assert munging.pad_axis(X[:1, :2], 4, 1, 7).tolist() == [[0, 1, 7, 7]]
    with pytest.raises(ValueError, match="smaller"):
        munging.pad_axis(X, 3, 0)
    x = np.zeros((4, 1, 3, 1))
    shapes = [munging.squeeze_safe(x, axis).shape for axis in (None, 1, -3, [1, 0], [-1, 0])]
    assert shapes == [(4, 3), (4, 3, 1), (4, 3, 1), (4, 3, 1), (4, 1, 3)]
    assert munging.handle_negative_axis(x, -1) == 3
    for axis in (4, -5):
        with pytest.raises(IndexError):
            munging.handle_negative_axis(x, axis)
    with pytest.raises(IndexError):
        munging.handle_negative_axis(np.array(0), 0)
