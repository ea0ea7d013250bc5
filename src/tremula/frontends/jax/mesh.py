"""Replicas in a mesh: its axes, the part of an array on each replica, the groups along an axis.

Replica numbers count along the last axis first. Along an axis, neighbours are `stride` apart:

    mesh of ("data": 2, "model": 3)     replicas 0 1 2     stride of "data" 3, of "model" 1
                                                 3 4 5
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremula.base.context_values import set_inside
from tremula.base.replica_group import ReplicaGroup

# Of each dimension of an array, the axes of the mesh that cut it, the outermost first.
Cuts = tuple[tuple[Hashable, ...], ...]


@dataclass(frozen=True)
class ReplicaMesh:
    """Named axes and their lengths, the outermost first."""

    axes: tuple[tuple[Hashable, int], ...]

    @property
    def n_replicas(self) -> int:
        return math.prod(size for _, size in self.axes)

    def group(self, name: Hashable) -> ReplicaGroup:
        """The replicas along an axis."""
        index = [axis for axis, _ in self.axes].index(name)
        return ReplicaGroup(self.axes[index][1], math.prod(n for _, n in self.axes[index + 1 :]))

    def index(self, replica: int, names: Sequence[Hashable]) -> int:
        """The index of a replica along some axes, taken together."""
        result = 0
        for name in names:
            group = self.group(name)
            result = result * group.size + group.member_of(replica)
        return result

    def part(self, shape: Sequence[int], cuts: Cuts, replica: int) -> tuple[slice, ...]:
        """The part of an array that a replica holds."""
        result = []
        for size, names in zip(shape, cuts, strict=True):
            n_parts = math.prod(self.group(name).size for name in names)
            result.append(_equal_part(size, n_parts, self.index(replica, names)))
        return tuple(result)

    def joined(self, parts: Sequence[np.ndarray], shape: Sequence[int], cuts: Cuts) -> np.ndarray:
        """The array of which each replica holds a part; of equal ones, that of the first."""
        whole = np.empty(tuple(shape), parts[0].dtype)
        for replica in reversed(range(len(parts))):
            whole[self.part(shape, cuts, replica)] = parts[replica]
        return whole


def _equal_part(size: int, n_parts: int, index: int) -> slice:
    length = size // n_parts
    return slice(index * length, (index + 1) * length)


def cuts_of(spec: Any, n_dims: int) -> Cuts:  # noqa: ANN401
    """What a PartitionSpec says of each dimension."""
    entries = [() if e is None else e if isinstance(e, tuple) else (e,) for e in spec]
    return (*entries, *[()] * (n_dims - len(entries)))


def mesh_of(params: Any) -> ReplicaMesh:  # noqa: ANN401
    """The axes that a `shard_map` maps."""
    manual = params.get("newly_manual_axes")
    axes = params["mesh"].shape.items()
    return ReplicaMesh(tuple((a, n) for a, n in axes if manual is None or a in manual))


_active: ContextVar[ReplicaMesh | None] = ContextVar("mesh", default=None)


def current_mesh() -> ReplicaMesh | None:
    """The mesh of the replicas whose program is being recorded."""
    return _active.get()


@contextmanager
def on_replicas(mesh: ReplicaMesh) -> Iterator[None]:
    """What is evaluated inside is the program of one replica: collectives are the machine's."""
    with set_inside(_active, mesh):
        yield
