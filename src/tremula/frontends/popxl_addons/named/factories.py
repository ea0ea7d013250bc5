"""Factories of variables: data, type and groups of replicas of variables to be made, by name."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path

import numpy as np
import torch

import popxl
from popxl import ops
from tremula.frontends.popxl.core.context import GRAPHS
from tremula.frontends.popxl.core.host_data import LazyArray, open_memmap
from tremula.frontends.popxl.dtypes import downcast_of
from tremula.frontends.popxl_addons.named.dot_tree import DotTree
from tremula.frontends.popxl_addons.named.replica_groupings import NamedReplicaGrouping
from tremula.frontends.popxl_addons.named.tensors import NamedTensors

VariableData = np.ndarray | np.generic | torch.Tensor | LazyArray | float
Data = Callable[[], VariableData] | Iterable[VariableData]
HOST_TYPES = (np.ndarray, np.generic, torch.Tensor, LazyArray, bool, int, float)


class VariableFactory:
    """Makes variables of one shape and type.

    `data_iter` is called, or advanced, once for each group of replicas of each variable. With
    `shard_over` above 1, that many replicas of a group have a shard each: inputs of graphs have the
    shape of a shard.
    """

    def __init__(
        self,
        data_iter: Data,
        dtype: popxl.dtype | None = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        shard_over: int = 1,
    ):
        self.data_iter = Peekable(data_iter)
        self.name, self.by_ref = name, by_ref
        self._grouping = replica_grouping
        if replica_grouping is None and GRAPHS.get():
            self._grouping = popxl.gcg().ir.replica_grouping()
        self.replica_sharded = shard_over > 1
        first = self.data_iter.peek()
        self.dtype = dtype or _dtype_of(first)
        self.shape: tuple[int, ...] = tuple(int(n) for n in np.shape(first))
        self.meta_shape: tuple[int, ...] = ()
        if self.replica_sharded:
            self._check_shards(shard_over)
            self.meta_shape = self.shape
            self.shape = (-(-prod(self.shape) // shard_over),)

    def _check_shards(self, shard_over: int) -> None:
        size = self.replica_grouping.group_size
        if shard_over > size:
            raise ValueError(
                f"{self.name or 'The variable'} cannot be sharded over {shard_over} replicas:"
                f" its groups have {size} members"
            )

    @property
    def replica_grouping(self) -> popxl.ReplicaGrouping:
        """Replicas that have the same value: all of them unless the factory says otherwise."""
        return popxl.gcg().ir.replica_grouping() if self._grouping is None else self._grouping

    def create_input(self, prefix: str | None = None) -> popxl.Tensor:
        """An input of the graph that is open, for a variable of this factory."""
        name = self.name if prefix is None else f"{prefix}.{self.name}"
        return popxl.graph_input(self.shape, self.dtype, name, self.by_ref, self.meta_shape)

    def create_tensor(
        self,
        name: str | None = None,
        empty: bool = False,
        memmap_dir: str | Path | None = None,
        read_only_if_exists: bool = False,
    ) -> popxl.Tensor:
        """A variable of the main graph; sharded ones give the shard."""
        name = name or self.name
        data = self._data(name, empty, memmap_dir, read_only_if_exists)
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
        memmap_dir: str | Path | None = None,
        read_only_if_exists: bool = False,
    ) -> popxl.Tensor:
        """A variable in an entry of a remote buffer, sharded if the buffer is.

        `empty` ones get no data: zeros, made when a session first needs them. With a folder, the
        variable is what the file of its name holds if there is one; else the file is written first.
        """
        name = name or self.name
        data = self._data(name, empty, memmap_dir, read_only_if_exists)
        make = popxl.remote_replica_sharded_variable if buffer.meta_shape else popxl.remote_variable
        group = self.replica_grouping
        return make(data, buffer, entry, self.dtype, name, replica_grouping=group)

    def _data(
        self, name: str | None, empty: bool, folder: str | Path | None, read_only: bool
    ) -> VariableData:
        if folder is None:
            return self.next_data(empty)
        return self.next_memmap(folder, name or "t", empty, read_only)

    def next_data(self, empty: bool = False) -> VariableData:
        """The data of one more variable: a row for each group of replicas if there are several."""
        if empty:
            return LazyArray(self._shape_on_host(), self.dtype)
        n_groups = self.replica_grouping.num_groups
        if n_groups == 1:
            return next(self.data_iter)
        return np.stack([_array(next(self.data_iter)) for _ in range(n_groups)])

    def next_memmap(
        self,
        memmap_dir: str | Path,
        name: str,
        empty: bool = False,
        read_only_if_exists: bool = False,
    ) -> np.memmap:
        """The file `name.npy` of a folder, plain numbers, mapped; a new one is filled with data."""
        file, shape = Path(memmap_dir) / f"{name}.npy", self._shape_on_host()
        if file.exists():
            return open_memmap(file, shape, self.dtype, "r" if read_only_if_exists else "r+")
        file.parent.mkdir(parents=True, exist_ok=True)
        mapped = open_memmap(file, shape, self.dtype, "w+")
        if not empty:
            mapped[...] = np.asarray(_array(self.next_data()), mapped.dtype)
        return mapped

    def _shape_on_host(self) -> tuple[int, ...]:
        shape = self.meta_shape or self.shape
        n_groups = self.replica_grouping.num_groups
        return (n_groups, *shape) if n_groups > 1 else shape


def _dtype_of(data: VariableData) -> popxl.dtype:
    """The type of an array's elements; numbers of Python are 32 bits wide."""
    if not isinstance(data, float | int):
        return popxl.dtype.as_dtype(data.dtype)
    return downcast_of(popxl.dtype.as_dtype(type(data)))


class Peekable(Iterator[VariableData]):
    """Data of variables, one after another, of which the next can be looked at."""

    def __init__(self, data: Data):
        self._source = _iterator(data)
        self._waiting: list[VariableData] = []
        self.peek()

    def peek(self) -> VariableData:
        """The next data, which stays the next."""
        if not self._waiting:
            self._waiting.append(_first_of(self._source))
        return self._waiting[0]

    def __next__(self) -> VariableData:
        return self._waiting.pop() if self._waiting else next(self._source)


def _iterator(data: Data) -> Iterator[VariableData]:
    if callable(data):
        return (data() for _ in itertools.count())
    if isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        raise ValueError(  # noqa: TRY004  PopXL's
            f"`data_iter` must be a function or an iterable, got {type(data)}."
            " If the data is the same for all variables, pass `lambda: data`"
        )
    return iter(data)


def _first_of(source: Iterator[VariableData]) -> VariableData:
    try:
        first = next(source)
    except StopIteration:
        raise ValueError("The data iterator of a variable factory is empty") from None
    except Exception as error:
        raise ValueError("The function that gives a variable's data raised an error") from error
    if not isinstance(first, HOST_TYPES):
        raise ValueError(  # noqa: TRY004  PopXL's
            f"`data_iter` must give NumPy arrays, PyTorch tensors or numbers, got {first!r}"
        )
    return first


def _array(value: VariableData) -> np.ndarray:
    """NumPy's form of host data."""
    if isinstance(value, LazyArray):
        return value.materialised()
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


class NamedVariableFactories(DotTree[VariableFactory]):
    """Factories by the names of variables. Variables are made in the order of names."""

    def init(
        self,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | Path | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedTensors:
        """A variable of the main graph for each, named `prefix.name`."""
        made = {
            name: factory.create_tensor(
                _prefixed(prefix, name), empty, memmap_dir, read_only_if_exists
            )
            for name, factory in zip(*self.unpack(), strict=True)
        }
        return NamedTensors.from_dict(made)

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
        buffer_of = buffers.to_dict()
        made = {
            name: factory.create_remote_tensor(
                buffer_of[name], entry, _prefixed(prefix, name), empty, memmap_dir,
                read_only_if_exists,
            )
            for name, factory in zip(*self.unpack(), strict=True)
        }  # fmt: skip
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
        groups = {name: f.replica_grouping for name, f in self.to_dict().items()}
        return NamedReplicaGrouping.from_dict(groups)


def _prefixed(prefix: str | None, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def add_variable_input(
    name: str,
    data_iter: Data,
    dtype: popxl.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: popxl.ReplicaGrouping | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """An input of the graph that is open, and the factory of its variables."""
    factory = VariableFactory(data_iter, dtype, name, by_ref, replica_grouping)
    return factory.create_input(), factory


def add_replica_sharded_variable_input(
    name: str,
    data_iter: Data,
    dtype: popxl.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: popxl.ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """An input and its factory for a variable of which each replica has a shard.

    The shards are those of `shard_over` replicas: by default of a whole group.
    """
    group = popxl.gcg().ir.replica_grouping() if replica_grouping is None else replica_grouping
    factory = VariableFactory(
        data_iter, dtype, name, by_ref, replica_grouping, shard_over or group.group_size
    )
    return factory.create_input(), factory
