"""Host arrays cut and repeated for replicas: shards of weights, inputs of groups."""

import numpy as np


def shard(x: np.ndarray, n: int, axis: int) -> np.ndarray:
    """N equal parts along an axis, stacked: [n, …]."""
    if x.shape[axis] % n:
        raise ValueError(f"Axis {axis} of {x.shape} does not divide into {n} parts")
    return np.stack(np.split(x, n, axis))


def shard2D(x: np.ndarray, n1: int, n2: int, axis1: int, axis2: int) -> np.ndarray:
    """Parts along two axes, stacked: [n1 · n2, …], those of the first axis outermost."""
    rows = shard(x, n1, axis1)
    return np.concatenate([shard(row, n2, axis2) for row in rows])


def repeat_axis(x: np.ndarray, n: int, axis: int) -> np.ndarray:
    """Each element along an axis n times."""
    return np.repeat(x, n, axis)


def tensor_parallel_input(data: np.ndarray, tp: int, rf: int) -> np.ndarray:
    """Samples for a session: [transfers, replicas, …], each for the tp replicas of its group.

    >>> tensor_parallel_input(np.arange(4), 2, 4)
    array([[0, 0, 1, 1],
           [2, 2, 3, 3]])
    """
    if rf % tp:
        raise ValueError(f"{rf} replicas do not divide into groups of {tp}")
    n = rf // tp
    if len(data) % n:
        raise ValueError(f"{len(data)} samples do not divide over {n} groups of replicas")
    rows = data.reshape(len(data) // n, n, *data.shape[1:])
    return np.repeat(rows, tp, axis=1)
