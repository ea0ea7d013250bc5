"""What a device holds: variables, shards and remote entries of every replica."""

import numpy as np
import torch

from tremula.frontends.popxl.core.host_data import array_of
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.tensor import Tensor, Variable
from tremula.frontends.popxl.dtypes import from_carrier, to_carrier


class DeviceMemory:
    """Tensors of each replica, by variable, and entries of remote buffers that were touched."""

    def __init__(self, ir: Ir):
        self.ir, self.n_replicas = ir, ir.replication_factor
        self.variables: dict[Tensor, list[torch.Tensor]] = {}
        self.was_written = True  # by the host, since a compiled program last looked
        self.remote: dict[tuple[int, int], list[torch.Tensor]] = {}  # buffer, entry → by replica
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
            self._store(shard, _shards(variable, values, n_shards, shard.shape[0]))
        self._store(variable, values)

    def _store(self, t: Tensor, values: list[torch.Tensor]) -> None:
        """Copy into the memory that is there, which compiled programs hold on to."""
        own = self.variables.get(t)
        if own is None:
            self.variables[t] = [value.clone() for value in values]
            return
        for target, value in zip(own, values, strict=True):
            target.copy_(value)

    def _replicated(self, variable: Variable) -> list[torch.Tensor]:
        grouping, type_ = variable.replica_grouping, variable.dtype
        array = array_of(variable.data)
        if grouping.num_groups == 1:
            value = to_carrier(array, type_)
            return [value] * self.n_replicas
        rows = [to_carrier(array[g], type_) for g in range(grouping.num_groups)]
        return [rows[g] for g in grouping.assignment]

    # -- remote entries --

    def entry(self, buffer: RemoteBuffer, index: int) -> list[torch.Tensor]:
        """An entry of a remote buffer: what was stored, a variable, or zeros."""
        key = (buffer.remote_buffer_id, index)
        if key not in self.remote:
            self.remote[key] = self._first_entry(buffer, key)
        return self.remote[key]

    def _first_entry(self, buffer: RemoteBuffer, key: tuple[int, int]) -> list[torch.Tensor]:
        variable = self._remote_variables.get(key)
        if variable is None:
            zero = torch.zeros(buffer.tensor_shape, dtype=buffer.tensor_dtype.carrier)
            return [zero.clone() for _ in range(self.n_replicas)]
        values = self._replicated(variable)
        if buffer.meta_shape:
            return _shards(variable, values, buffer.n_shards, buffer.tensor_shape[0])
        return [value.clone() for value in values]

    # -- device → host --

    def read(self, variable: Variable) -> np.ndarray:
        """A variable's values as the host sees them."""
        values = self._values(variable)
        if variable.retrieval_mode == "all_replicas":
            chosen = list(range(self.n_replicas))
        else:
            chosen = [group[0] for group in variable.replica_grouping.members]
        arrays = [from_carrier(values[r], variable.dtype) for r in chosen]
        return np.stack(arrays) if len(arrays) > 1 else arrays[0].copy()

    def was_touched(self, variable: Variable) -> bool:
        return variable.remote is None or _key(variable) in self.remote

    def _values(self, variable: Variable) -> list[torch.Tensor]:
        if variable.remote is not None:
            buffer, index = variable.remote
            values = self.entry(buffer, index)
            if not buffer.meta_shape:
                return values
            return _gathered(variable, values, buffer.n_shards)
        if variable.shard is not None:
            shard, n = variable.shard
            return _gathered(variable, self.variables[shard], n)
        return self.variables[variable]


def _key(variable: Variable) -> tuple[int, int]:
    buffer, index = variable.remote
    return buffer.remote_buffer_id, index


def _shard_groups(variable: Variable, n_shards: int) -> list[list[int]]:
    """Replicas that hold the parts of one copy of a sharded variable, in order."""
    found = []
    for group in variable.replica_grouping.members:
        found += [group[i : i + n_shards] for i in range(0, len(group), n_shards)]
    return found


def _shards(
    variable: Variable, values: list[torch.Tensor], n_shards: int, size: int
) -> list[torch.Tensor]:
    """Each replica's part of a variable: flat, the last one filled up with zeros."""
    parts = list(values)
    for group in _shard_groups(variable, n_shards):
        flat = torch.nn.functional.pad(
            values[group[0]].reshape(-1), (0, n_shards * size - variable.nelms)
        )
        for i, replica in enumerate(group):
            parts[replica] = flat[i * size : (i + 1) * size].clone()
    return parts


def _gathered(variable: Variable, values: list[torch.Tensor], n_shards: int) -> list[torch.Tensor]:
    """The whole variable on each replica, from the parts."""
    found = list(values)
    for group in _shard_groups(variable, n_shards):
        flat = torch.cat([values[replica] for replica in group])[: variable.nelms]
        for replica in group:
            found[replica] = flat.reshape(variable.shape)
    return found
