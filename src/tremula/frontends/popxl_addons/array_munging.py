"""Host arrays split, repeated and padded for replicas: shards of weights, inputs of groups."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

Arrays = list[np.ndarray]


def shard(x: np.ndarray, n: int, axis: int) -> np.ndarray:
    """N equal parts along an axis, stacked: [n, …].

    >>> shard(np.arange(4), 2, 0).tolist()
    [[0, 1], [2, 3]]
    """
    return np.stack(_split(x, n, axis))


def _split(x: np.ndarray, n: int, axis: int) -> Arrays:
    axis = handle_negative_axis(x, axis)
    if n < 1 or x.shape[axis] % n:
        raise ValueError(f"Axis {axis} of {x.shape} does not divide into {n} parts")
    return np.split(x, n, axis)


def unshard_arrays(xs: Arrays, axis: int) -> np.ndarray:
    """Arrays [1, …] joined along an axis; a positive axis does not count the first dimension."""
    ranks = {x.ndim for x in xs}
    if len(ranks) > 1:
        raise ValueError(f"All arrays must have the same rank, got ranks {[x.ndim for x in xs]}")
    at = axis + 1 if axis >= 0 else handle_negative_axis(xs[0], axis)
    return np.concatenate(xs, axis=at).squeeze(0)


def unshard(x: np.ndarray, axis: int) -> np.ndarray:
    """The array that `shard` split along an axis.

    >>> x = np.arange(6).reshape(2, 3)
    >>> bool((unshard(shard(x, 3, 1), 1) == x).all())
    True
    """
    return unshard_arrays(np.split(x, x.shape[0], axis=0), axis)


def repeat(x: np.ndarray, n: int, axis: int = 0) -> np.ndarray:
    """The array n times along a new dimension, which is inserted at `axis`.

    >>> repeat(np.arange(2), 3, 1).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    return np.repeat(np.expand_dims(x, axis), n, axis=axis)


def repeat_axis(x: np.ndarray, n: int, axis: int = 0) -> np.ndarray:
    """The whole array n times, one copy after the other along a dimension that it has.

    >>> repeat_axis(np.arange(4).reshape(2, 2), 2, 1).tolist()
    [[0, 1, 0, 1], [2, 3, 2, 3]]
    """
    repeats = [1] * x.ndim
    repeats[handle_negative_axis(x, axis)] = n
    return np.tile(x, repeats)


def split2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> list[Arrays]:
    """Parts along two axes: a list for each part of the first, with the parts of the second."""
    return [_split(part, n_2, axis_2) for part in _split(x, n_1, axis_1)]


def shard2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> np.ndarray:
    """Parts along two axes, stacked: [n_1 · n_2, …], those of the first axis outermost."""
    return np.stack([part for row in split2D(x, n_1, n_2, axis_1, axis_2) for part in row])


def unshard2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> np.ndarray:
    """The array that `shard2D` split along two axes."""
    if x.shape[0] != n_1 * n_2:
        raise ValueError(f"Expected {n_1} · {n_2} shards in the first dimension, got {x.shape}")
    parts = np.split(x, n_1 * n_2, axis=0)
    rows = [unshard_arrays(parts[i * n_2 : (i + 1) * n_2], axis_2) for i in range(n_1)]
    return np.concatenate(rows, axis=axis_1)


def repeat_shard(
    x: np.ndarray,
    n_repeats: int,
    n_shards: int,
    shard_axis: int,
    sharded_tensor: Literal["contiguous", "strided"] = "contiguous",
) -> np.ndarray:
    """Shards of an array, each `n_repeats` times: [n_shards · n_repeats, …].

    "contiguous" repeats the whole list of shards, "strided" each shard in its place.

    >>> repeat_shard(np.arange(2), 2, 2, 0).ravel().tolist()
    [0, 1, 0, 1]
    >>> repeat_shard(np.arange(2), 2, 2, 0, "strided").ravel().tolist()
    [0, 0, 1, 1]
    """
    shards = shard(x, n_shards, shard_axis)
    if sharded_tensor == "contiguous":
        return repeat_axis(shards, n_repeats, 0)
    if sharded_tensor == "strided":
        return np.repeat(shards, n_repeats, axis=0)
    raise ValueError(f"sharded_tensor must be 'contiguous' or 'strided', got {sharded_tensor!r}")


def tensor_parallel_input(
    input_data: np.ndarray,
    tp: int,
    rf: int,
    repeat_fn: Callable[[np.ndarray, int], np.ndarray] | None = None,
) -> np.ndarray:
    """Samples for a session: [transfers, replicas, …], each for the tp replicas of its group.

    `repeat_fn(samples, i)` changes the copy of the i-th member of each group: offsets of shards,
    for example. The first two dimensions are left out where they are 1.

    >>> tensor_parallel_input(np.arange(4), 2, 4).tolist()
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    n_groups = _n_data_parallel(tp, rf)
    if len(input_data) % n_groups:
        raise ValueError(
            f"{len(input_data)} samples do not divide over {n_groups} groups of replicas"
        )
    samples = np.expand_dims(input_data, axis=1)
    copies = [samples if repeat_fn is None else repeat_fn(samples.copy(), i) for i in range(tp)]
    rows = np.concatenate(copies, axis=1).reshape(-1, rf, *input_data.shape[1:])
    return squeeze_safe(rows, [0, 1])


def tensor_parallel_output(
    output_data: np.ndarray,
    num_host_transfers: int,
    tp: int,
    rf: int,
    data_shape: tuple[int, ...],
    tp_identical: bool = True,
    true_num_host_transfers: int | None = None,
) -> np.ndarray:
    """Results of a session as [samples, …], or [samples, tp, …] unless groups give one value.

    `true_num_host_transfers` leaves out rows that the program did not write.
    """
    n_groups = _n_data_parallel(tp, rf)
    rows = output_data.reshape(num_host_transfers, n_groups, tp, *data_shape)
    rows = rows[:true_num_host_transfers].reshape(-1, tp, *data_shape)
    return rows[:, 0] if tp_identical else rows


def _n_data_parallel(tp: int, rf: int) -> int:
    """Groups of tensor parallel replicas."""
    if not 1 <= tp <= rf or rf % tp:
        raise ValueError(
            f"The tensor parallel factor must divide the replication factor, got tp={tp}, rf={rf}"
        )
    return rf // tp


def pad_axis(x: np.ndarray, n: int, axis: int, value: float = 0) -> np.ndarray:
    """The array with one dimension filled up to length n.

    >>> pad_axis(np.ones((1, 2), int), 4, 1).tolist()
    [[1, 1, 0, 0]]
    """
    if x.shape[axis] > n:
        raise ValueError(f"Cannot pad axis {axis} of shape {x.shape} to the smaller length {n}")
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, n - x.shape[axis])
    return np.pad(x, padding, constant_values=value)


def squeeze_safe(x: np.ndarray, axis: int | Sequence[int] | None = None) -> np.ndarray:
    """The array without those of the given dimensions that have length 1."""
    if axis is None:
        return np.squeeze(x)
    axes = [axis] if isinstance(axis, int) else axis
    positive = {handle_negative_axis(x, a) for a in axes}
    return np.squeeze(x, axis=tuple(a for a in positive if x.shape[a] == 1))


def handle_negative_axis(x: np.ndarray, axis: int) -> int:
    """The number of a dimension, counted from the first."""
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"Axis {axis} is out of range for an array of rank {x.ndim}")
    return axis % x.ndim
