"""What a device holds: variables, shards and remote entries, one row for each replica."""

import numpy as np
import torch
from torch.nn.functional import pad

from tremula.frontends.popxl.core.host_data import array_of
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.tensor import Tensor, Variable
from tremula.frontends.popxl.dtypes import from_carrier, to_carrier
from tremula.frontends.popxl.run.processes import own_replicas


class DeviceMemory:
    """Values by variable, and entries of remote buffers that were touched: [replicas, …]."""

    def __init__(self, ir: Ir):
        self.ir, self.own = ir, own_replicas(ir)
        self.n_replicas = self.own.n  # of this process
        self.variables: dict[Tensor, torch.Tensor] = {}
        self.was_written = True  # by the host, since a compiled program last looked
        self.remote: dict[tuple[int, int], torch.Tensor] = {}  # by buffer and entry
        self._remote_variables = {
            (v.remote[0].remote_buffer_id, v.remote[1]): v
            for v in ir.main_graph.variables
            if v.remote is not None
        }

    # -- host → device --

    def write_all(self) -> None:
        """All variables as the host holds them; remote ones when they are first read."""
        self.remote.clear()
        for variable in self.ir.main_graph.variables:
            self.write(variable)

    def write(self, variable: Variable) -> None:
        self.was_written = True
        if variable.remote is not None:
            self.remote.pop(_key(variable), None)
            return
        values = self._replicated(variable)
        if variable.shard is not None:
            shard, n_shards = variable.shard
            self._store(shard, _shards(variable, values, n_shards, shard.shape[0])[self.own.rows])
        self._store(variable, values[self.own.rows])

    def _store(self, t: Tensor, value: torch.Tensor) -> None:
        """Copy into the memory that is there, which compiled programs hold on to."""
        own = self.variables.get(t)
        if own is None:
            self.variables[t] = value.clone(memory_format=torch.contiguous_format)
        else:
            own.copy_(value)

    def _replicated(self, variable: Variable) -> torch.Tensor:
        """A variable on all replicas, those of other processes included."""
        grouping, type_ = variable.replica_grouping, variable.dtype
        rows = to_carrier(array_of(variable.data), type_)
        if grouping.num_groups == 1:
            return rows.expand(self.own.n_total, *rows.shape)
        return rows[grouping.assignment]

    # -- remote entries --

    def entry(self, buffer: RemoteBuffer, index: int) -> torch.Tensor:
        """An entry of a remote buffer: what was stored, a variable, or zeros."""
        key = (buffer.remote_buffer_id, index)
        if key not in self.remote:
            self.remote[key] = self._first_entry(buffer, key)
        return self.remote[key]

    def _first_entry(self, buffer: RemoteBuffer, key: tuple[int, int]) -> torch.Tensor:
        variable = self._remote_variables.get(key)
        if variable is None:
            shape = (self.n_replicas, *buffer.tensor_shape)
            return torch.zeros(shape, dtype=buffer.tensor_dtype.carrier)
        values = self._replicated(variable)
        if buffer.meta_shape:
            values = _shards(variable, values, buffer.n_shards, buffer.tensor_shape[0])
        return values[self.own.rows].clone(memory_format=torch.contiguous_format)

    # -- device → host --

    def read(self, variable: Variable) -> np.ndarray:
        """A variable's values as the host sees them; all processes read it together."""
        values = self._values(variable)
        if variable.retrieval_mode == "all_replicas":
            chosen = list(range(self.own.n_total))
        else:
            chosen = [group[0] for group in variable.replica_grouping.members]
        arrays = [from_carrier(values[r], variable.dtype) for r in chosen]
        return np.stack(arrays) if len(arrays) > 1 else arrays[0].copy()

    def was_touched(self, variable: Variable) -> bool:
        return variable.remote is None or _key(variable) in self.remote

    def _values(self, variable: Variable) -> torch.Tensor:
        """A variable on all replicas."""
        if variable.remote is not None:
            buffer, index = variable.remote
            values = self.own.gathered(self.entry(buffer, index))
            return _gathered(variable, values, buffer.n_shards) if buffer.meta_shape else values
        if variable.shard is not None:
            shard, n = variable.shard
            return _gathered(variable, self.own.gathered(self.variables[shard]), n)
        return self.own.gathered(self.variables[variable])


def _key(variable: Variable) -> tuple[int, int]:
    assert variable.remote is not None, f"{variable!r} is not in remote memory"
    buffer, index = variable.remote
    return buffer.remote_buffer_id, index


def _shard_groups(variable: Variable, n_shards: int) -> list[list[int]]:
    """Replicas that hold the parts of one copy of a sharded variable, in order."""
    result = []
    for group in variable.replica_grouping.members:
        result += [group[i : i + n_shards] for i in range(0, len(group), n_shards)]
    return result


def _shards(variable: Variable, values: torch.Tensor, n_shards: int, size: int) -> torch.Tensor:
    """Each replica's part of a variable: flat, the last one filled up with zeros."""
    parts = values.new_zeros((len(values), size))
    for group in _shard_groups(variable, n_shards):
        flat = pad(values[group[0]].reshape(-1), (0, n_shards * size - variable.nelms))
        parts[group] = flat.reshape(n_shards, size)
    return parts


def _gathered(variable: Variable, values: torch.Tensor, n_shards: int) -> torch.Tensor:
    """The whole variable on each replica, from the parts."""
    whole = values.new_empty((len(values), *variable.shape))
    for group in _shard_groups(variable, n_shards):
        whole[group] = values[group].reshape(-1)[: variable.nelms].reshape(variable.shape)
    return whole
