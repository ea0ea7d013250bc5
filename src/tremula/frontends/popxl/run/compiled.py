"""A program compiled as a captured step: for the host, or for tiles."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.streams import Stream
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import from_carrier, to_carrier
from tremula.frontends.popxl.run.counts import executions, transfers
from tremula.frontends.popxl.run.interpreter import plan_of
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.rows import RowTracer
from tremula.frontends.popxl.run.tracer import TracedStreams, Tracer
from tremula.frontends.shared.program import AttachedDevice, StepProgram, compile_program
from tremula.ir.repetition import Repetition
from tremula.ir.run.compiled_step import StepSettings, StepToCompile
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import HostSettings

MAX_REMOTE_BYTES = 2**30
_EFFECTS = {
    "HostLoad", "HostStore", "RemoteLoad", "RemoteStore", "RemoteLoadInplace", "PrintTensor",
}  # fmt: skip
_NOT_IN_BRANCHES = {
    *_EFFECTS, "ReplicatedAllReduce", "ReplicatedAllReduceInplace", "ReplicatedAllGather",
    "ReplicatedReduceScatter", "ReplicatedAllReduceTP",
}  # fmt: skip


def obstacle(ir: Ir) -> str:
    """Why a program cannot be one function of tensors, or ""."""
    used: set[RemoteBuffer] = set()
    if ir.instance_replication_factor != ir.replication_factor:
        return "its replicas are computed by several processes"
    for graph in executions(ir):
        for op in graph.ops:
            if op.kind == "If" and any(_has_effects(g, _NOT_IN_BRANCHES) for g in op.graphs):
                return "a branch reads or writes more than its inputs and outputs"
            if "buffer" in op.attributes:
                used.add(op.attributes["buffer"])
    n_bytes = ir.replication_factor * sum(buffer.n_bytes for buffer in used)
    return f"remote buffers hold {n_bytes:,} bytes" if n_bytes > MAX_REMOTE_BYTES else ""


def _has_effects(graph: Graph, kinds: set[str]) -> bool:
    return any(
        op.kind in kinds or any(_has_effects(called, kinds) for called in op.graphs)
        for op in graph.ops
    )


def shared_graphs(ir: Ir) -> set[Graph]:
    """Graphs that stay functions on tiles: called from several places, without transfers."""
    sites: Counter[Graph] = Counter()
    for graph in executions(ir):
        sites.update(called for op in graph.ops if op.kind == "Call" for called in op.graphs)
    return {graph for graph, n in sites.items() if n > 1 and not _has_effects(graph, _EFFECTS)}


class _MainGraph(nn.Module):
    """All memory of a device as buffers, and the main graph as `forward`.

    With `has_rows`, tensors hold all replicas; otherwise they are those of one replica, and all
    replicas run the same program.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        streams: tuple[list[Stream], list[Stream]],
        functions: set[Graph],
        *,
        has_rows: bool,
    ):
        super().__init__()
        self.memory, self.functions, self.has_rows = memory, functions, has_rows
        self.loads, self.stores = streams
        owners = [*memory.variables, *_used_buffers(memory.ir)]
        self.owners: list[Tensor | RemoteBuffer] = owners
        for i, owner in enumerate(owners):
            value = value_of(memory, owner)
            self.register_buffer(f"held_{i}", value if has_rows else value[0])

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        values: dict[Tensor, torch.Tensor] = {}
        remote: dict[int, torch.Tensor] = {}
        for i, owner in enumerate(self.owners):
            value = self.get_buffer(f"held_{i}")
            if isinstance(owner, RemoteBuffer):
                remote[owner.remote_buffer_id] = value
            else:
                values[owner] = value
        streams = TracedStreams(dict(zip(self.loads, inputs, strict=True)))
        tracer = RowTracer if self.has_rows else Tracer
        tracer(self.memory, values, remote, self.functions).run(self.memory.ir.main_graph, streams)
        return [streams.outputs(stream) for stream in self.stores]


def _used_buffers(ir: Ir) -> list[RemoteBuffer]:
    used = {
        op.attributes["buffer"]
        for graph in executions(ir)
        for op in graph.ops
        if "buffer" in op.attributes
    }
    return sorted(used, key=lambda buffer: buffer.remote_buffer_id)


def value_of(memory: DeviceMemory, owner: Tensor | RemoteBuffer) -> torch.Tensor:
    """A variable or remote buffer of all replicas, as `[replicas, …]`."""
    if isinstance(owner, RemoteBuffer):
        return torch.stack([memory.entry(owner, i) for i in range(owner.entries)], 1)
    return memory.variables[owner]


class CompiledProgram:
    """A program ready to run; its memory is `memory`'s, before and after every run.

    On the host it runs on rows, one for each replica; with `for_tiles`, as each replica sees it.
    """

    def __init__(
        self,
        ir: Ir,
        memory: DeviceMemory,
        host: HostSettings,
        tiles: TileSettings,
        *,
        for_tiles: bool,
        runs_on_tiles: bool,
        device: AttachedDevice | None = None,
    ):
        self.ir, self.memory, self.device = ir, memory, device
        self.n_replicas = memory.n_replicas
        self.has_rows = self.n_replicas > 1 and not for_tiles
        moved = transfers(ir)
        order = sorted(moved, key=lambda s: s.tensor_id)
        loads = [s for s in order if s in ir.get_all_h2d_streams()]
        self.stores = [s for s in order if s not in loads]
        self.loads = {s: moved[s] for s in loads}
        functions = shared_graphs(ir) if for_tiles else set()
        for graph in executions(ir):
            plan_of(graph)  # constants are real tensors, not those of the recording
        streams = loads, self.stores
        self.module = _MainGraph(memory, streams, functions, has_rows=self.has_rows)
        self.program = self._compile(host, tiles, runs_on_tiles)

    def _compile(self, host: HostSettings, tiles: TileSettings, on_tiles: bool) -> StepProgram:
        rows = (self.n_replicas,) if self.has_rows else ()
        inputs = [
            torch.zeros((k, *rows, *s.shape), dtype=s.dtype.carrier) for s, k in self.loads.items()
        ]
        names = [s.tensor_id for s in self.loads]
        model = self.module
        request = StepToCompile(model, lambda flat: (list(model(*flat)), None), inputs, names)
        n_replicas = 1 if self.has_rows else self.n_replicas
        settings = StepSettings(
            repetition=Repetition(n_replicas=n_replicas),
            host=host,
            tiles=tiles,
            runs_on_tiles=on_tiles,
        )
        return compile_program(request, settings, device=self.device)

    # -- memory --

    def _write(self) -> None:
        """Memory → session."""
        values = [value_of(self.memory, owner) for owner in self.module.owners]
        if self.has_rows:
            self.program.write_weights([], values)
            return
        self.program.write_weights([], [value[0] for value in values])
        for r in range(1, self.n_replicas):
            own = {i: value[r] for i, value in enumerate(values)}
            self.program.session.write_buffers(own, r)

    def _read(self) -> None:
        """Session → memory: on the host the tensors themselves."""
        _, values = self.program.session.read_weights()
        for i, owner in enumerate(self.module.owners):
            value = values[0][i] if self.has_rows else _joined([own[i] for own in values], 0)
            if isinstance(owner, RemoteBuffer):
                for e in range(owner.entries):
                    self.memory.remote[owner.remote_buffer_id, e] = value[:, e]
            else:
                self.memory.variables[owner] = value.to(self.memory.variables[owner].dtype)

    # -- running --

    def run(
        self, inputs: Mapping[Stream, np.ndarray], outputs: Mapping[Stream, np.ndarray]
    ) -> None:
        """One run, on arrays of the host."""
        if self.memory.was_written:
            self._write()
            self.memory.was_written = False
        values = [
            # A copy: the program may write to what it loads.
            to_carrier(inputs[s].reshape(-1, self.n_replicas, *s.shape)[:k], s.dtype).clone()
            for s, k in self.loads.items()
        ]
        rows = [values]
        if not self.has_rows:
            rows = [[value[:, r] for value in values] for r in range(self.n_replicas)]
        result = self.program.call(rows)
        for i, stream in enumerate(self.stores):
            value = result[0][i] if self.has_rows else _joined([own[i] for own in result], 1)
            array = outputs[stream].reshape(-1, self.n_replicas, *stream.shape)
            array[: len(value)] = from_carrier(value.to(stream.dtype.carrier), stream.dtype)
        self._read()

    @property
    def is_on_host(self) -> bool:
        return not self.program.settings.runs_on_tiles


def _joined(of_replicas: list[torch.Tensor], axis: int) -> torch.Tensor:
    """Along a new axis; of a single replica the memory itself."""
    alone = len(of_replicas) == 1
    return of_replicas[0].unsqueeze(axis) if alone else torch.stack(of_replicas, axis)
