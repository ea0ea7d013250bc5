"""Variables that are to be made: from data that comes when they are, under names."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.core.host_data import LazyArray, open_memmap
from tremula.frontends.popxl_addons.named.dot_tree import DotTree
from tremula.frontends.popxl_addons.named.tensors import NamedReplicaGrouping, NamedTensors

Data = Callable[[], Any] | Iterable[Any]


class VariableFactory:
    """Makes variables of one shape and type.

    `data` is called, or asked for its next element, once for each group of replicas of each
    variable. A sharded one (`shard_over` replicas) is an input of its shard's shape in graphs.
    """

    def __init__(
        self,
        data: Data,
        dtype: popxl.dtype | None = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_sharded: bool = False,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        shard_over: int | None = None,
    ):
        self._source = _iterator(data)
        self._first: list[Any] = [_first_of(self._source)]
        self.name, self.by_ref = name, by_ref
        self.replica_grouping = replica_grouping
        self.replica_sharded = replica_sharded
        self.dtype = dtype or popxl.dtype.as_dtype(_array(self._first[0]).dtype)
        self.shape = tuple(int(n) for n in self._first[0].shape)
        self.meta_shape: tuple[int, ...] = ()
        if replica_sharded:
            group = replica_grouping or popxl.gcg().ir.replica_grouping()
            self.meta_shape, n = self.shape, shard_over or group.group_size
            self.shape = (-(-prod(self.shape) // n),)

    def create_input(self, prefix: str | None = None) -> popxl.Tensor:
        """An input of the graph that is open, for a variable of this factory."""
        name = self.name if prefix is None else f"{prefix}.{self.name}"
        return popxl.graph_input(self.shape, self.dtype, name, self.by_ref, self.meta_shape)

    def create_tensor(self, name: str | None = None, empty: bool = False) -> popxl.Tensor:
        """A variable of the main graph; sharded ones give the shard."""
        data, name = self.next_data(empty), name or self.name
        if self.replica_sharded:
            _, shard = popxl.replica_sharded_variable(
                data, self.dtype, name, replica_grouping=self.replica_grouping,
                shard_over=prod(self.meta_shape) // self.shape[0],
            )  # fmt: skip
            return shard
        return popxl.variable(data, self.dtype, name, replica_grouping=self.replica_grouping)

    def create_remote_tensor(
        self,
        buffer: popxl.RemoteBuffer,
        entry: int,
        name: str | None = None,
        empty: bool = False,
        memmap_file: Path | None = None,
        read_only_if_exists: bool = False,
    ) -> popxl.Tensor:
        """A variable in an entry of a remote buffer, sharded if the buffer is.

        `empty` ones get no data: zeros, made when a session first needs them. With a file, the
        variable is what the file holds if it is there; else the file is written first.
        """
        if memmap_file is None:
            data = self.next_data(empty)
        else:
            data = self._mapped(memmap_file, empty, read_only_if_exists)
        make = popxl.remote_replica_sharded_variable if buffer.meta_shape else popxl.remote_variable
        group = self.replica_grouping
        return make(data, buffer, entry, self.dtype, name or self.name, replica_grouping=group)

    def next_data(self, empty: bool = False) -> Any:
        """The data of one more variable: a row for each group of replicas if there are several."""
        shape = self._shape_on_host()
        if empty:
            return LazyArray(shape, self.dtype)
        n_groups = self.replica_grouping.num_groups if self.replica_grouping else 1
        if n_groups == 1:
            return self._next()
        return np.stack([_array(self._next()) for _ in range(n_groups)])

    def _next(self) -> Any:
        return self._first.pop() if self._first else next(self._source)

    def _shape_on_host(self) -> tuple[int, ...]:
        shape = self.meta_shape or self.shape
        n_groups = self.replica_grouping.num_groups if self.replica_grouping else 1
        return (n_groups, *shape) if n_groups > 1 else shape

    def _mapped(self, file: Path, empty: bool, read_only: bool) -> np.memmap:
        shape = self._shape_on_host()
        if file.exists():
            return open_memmap(file, shape, self.dtype, "r" if read_only else "r+")
        file.parent.mkdir(parents=True, exist_ok=True)
        mapped = open_memmap(file, shape, self.dtype, "w+")
        if not empty:
            mapped[...] = np.asarray(_array(self.next_data()), mapped.dtype)
        return mapped


def _iterator(data: Data) -> Iterator[Any]:
    if callable(data):
        return (data() for _ in itertools.count())
    if isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        raise ValueError(  # noqa: TRY004  PopXL's
            f"Data of a variable factory must be a function or an iterable, got {type(data)}."
            " If it is the same for all variables, pass `lambda: data`"
        )
    return iter(data)


def _first_of(source: Iterator[Any]) -> Any:
    try:
        first = next(source)
    except StopIteration:
        raise ValueError("The data iterator of a variable factory is empty") from None
    except Exception as error:
        raise ValueError("The function that gives a variable's data raised an error") from error
    if not hasattr(first, "shape") or not hasattr(first, "dtype"):
        first = np.asarray(first)
    return first


def _array(value: Any) -> Any:
    """NumPy's form of host data."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


class NamedVariableFactories(DotTree[VariableFactory]):
    """Factories by the names of variables. Variables are made in the order of names."""

    def init(self, prefix: str | None = None, empty: bool = False) -> NamedTensors:
        """A variable of the main graph for each."""
        names, factories = self.unpack()
        made = [
            factory.create_tensor(_prefixed(prefix, name), empty)
            for name, factory in zip(names, factories, strict=True)
        ]
        return NamedTensors.pack(names, made)

    def init_remote(
        self,
        buffers: DotTree[popxl.RemoteBuffer],
        entry: int = 0,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | Path | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedTensors:
        """A remote variable for each, in the buffer of its name."""
        result, made = buffers.to_dict(), {}
        names, factories = self.unpack()
        for name, factory in zip(names, factories, strict=True):
            full = _prefixed(prefix, name)
            file = None if memmap_dir is None else Path(memmap_dir) / f"{full}.bin"
            made[name] = factory.create_remote_tensor(
                result[name], entry, full, empty, file, read_only_if_exists
            )
        return NamedTensors.from_dict(made)

    def init_zero(self) -> NamedTensors:
        """Zeros for each, in any graph."""
        return self._init("zero")

    def init_undef(self) -> NamedTensors:
        """Tensors without values for each, in any graph."""
        return self._init("undef")

    def _init(self, how: str) -> NamedTensors:
        made = {
            name: ops.init(f.shape, f.dtype, name, how, f.meta_shape)
            for name, f in self.to_dict().items()
        }
        return NamedTensors.from_dict(made)

    @property
    def replica_groupings(self) -> NamedReplicaGrouping:
        """The groups of replicas that hold the same values of each."""
        whole = popxl.gcg().ir.replica_grouping()
        groups = {name: f.replica_grouping or whole for name, f in self.to_dict().items()}
        return NamedReplicaGrouping.from_dict(groups)


def _prefixed(prefix: str | None, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def add_variable_input(
    name: str,
    data: Data,
    dtype: popxl.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: popxl.ReplicaGrouping | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """An input of the graph that is open, and the factory of its variables."""
    factory = VariableFactory(data, dtype, name, by_ref, replica_grouping=replica_grouping)
    return factory.create_input(), factory


def add_replica_sharded_variable_input(
    name: str,
    data: Data,
    dtype: popxl.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: popxl.ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """An input and its factory for a variable of which each replica has a shard."""
    factory = VariableFactory(data, dtype, name, by_ref, True, replica_grouping, shard_over)
    return factory.create_input(), factory
