"""A program compiled as a captured step: for the host, or for tiles."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import from_carrier, to_carrier
from tremula.frontends.popxl.run.counts import executions, transfers
from tremula.frontends.popxl.run.interpreter import plan_of
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.tracer import TracedStreams, Tracer
from tremula.ir.run.compiled_step import CompiledStep, StepSettings, StepToCompile, compile_step
from tremula.ir.run.session import HostSession
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import HostSettings

MAX_REMOTE_BYTES = 2**30
_EFFECTS = {
    "HostLoad", "HostStore", "RemoteLoad", "RemoteStore", "RemoteLoadInplace", "PrintTensor",
}  # fmt: skip


def obstacle(ir: Ir) -> str:
    """Why a program cannot be one function of tensors, or ""."""
    used: set[RemoteBuffer] = set()
    if _stores_in_nested_loops(ir.main_graph):
        return "a loop inside of a loop stores to remote memory"
    for graph in executions(ir):
        for op in graph._ops:
            if op.kind == "If" and any(_has_effects(called) for called in op.graphs):
                return "a branch reads or writes more than its inputs and outputs"
            if "buffer" in op.attributes:
                used.add(op.attributes["buffer"])
    n_bytes = ir.replication_factor * sum(buffer.n_bytes for buffer in used)
    return f"remote buffers hold {n_bytes:,} bytes" if n_bytes > MAX_REMOTE_BYTES else ""


def _stores_in_nested_loops(graph: Any, depth: int = 0) -> bool:
    """Whether bodies of loops in loops write remote entries, which recording them cannot do yet."""
    for op in graph._ops:
        if depth > 1 and op.kind == "RemoteStore":
            return True
        deeper = depth + (op.kind == "Loop")
        if any(_stores_in_nested_loops(called, deeper) for called in op.graphs):
            return True
    return False


def _has_effects(graph: Any) -> bool:
    return any(
        op.kind in _EFFECTS
        or bool(op.row.is_collective)
        or any(_has_effects(called) for called in op.graphs)
        for op in graph._ops
    )


def shared_graphs(ir: Ir) -> set[Graph]:
    """Graphs that stay functions on tiles: called from several places, without effects."""
    sites: Counter[Graph] = Counter()
    for graph in executions(ir):
        sites.update(called for op in graph._ops if op.kind == "Call" for called in op.graphs)
    return {graph for graph, n in sites.items() if n > 1 and not _has_effects(graph)}


class _Program(nn.Module):
    """All memory of a device as buffers, and the main graph as `forward`."""

    def __init__(
        self,
        memory: DeviceMemory,
        buffers: list[RemoteBuffer],
        streams: Any,
        functions: set[Graph],
    ):
        super().__init__()
        self.functions = functions
        self.memory, self.remote, (self.loads, self.stores) = memory, buffers, streams
        self.places: list[tuple[Any, int]] = []  # of each buffer: tensor or remote buffer, replica
        for t, values in memory.variables.items():
            for r, value in enumerate(values):
                self._hold(t, r, value)
        for buffer in buffers:
            for r in range(memory.n_replicas):
                entries = [memory.entry(buffer, i)[r] for i in range(buffer.entries)]
                self._hold(buffer, r, torch.stack(entries))

    def _hold(self, owner: Any, replica: int, value: torch.Tensor) -> None:
        self.register_buffer(f"held_{len(self.places)}", value)
        self.places.append((owner, replica))

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        memory = DeviceMemory(self.memory.ir)
        remote: dict[int, list[torch.Tensor]] = {}
        for i, (owner, _) in enumerate(self.places):
            value = self.get_buffer(f"held_{i}")
            if isinstance(owner, RemoteBuffer):
                remote.setdefault(owner.remote_buffer_id, []).append(value)
            else:
                memory.variables.setdefault(owner, []).append(value)
        streams = TracedStreams(dict(zip(self.loads, inputs, strict=True)))
        Tracer(memory, remote, self.functions).run(memory.ir.main_graph, streams)
        return [streams.outputs(stream) for stream in self.stores]


class CompiledProgram:
    """A program ready to run; its memory is `memory`'s, before and after every run."""

    def __init__(
        self,
        ir: Ir,
        memory: DeviceMemory,
        host: HostSettings,
        tiles: TileSettings,
        *,
        on_tiles: bool,
    ):
        self.ir, self.memory, self.on_tiles = ir, memory, on_tiles
        moved = transfers(ir)
        order = sorted(moved, key=lambda s: s.tensor_id)
        loads = [s for s in order if s in ir.get_all_h2d_streams()]
        stores = [s for s in order if s not in loads]
        self.loads = {s: moved[s] for s in loads}
        self.stores = stores
        used = {
            op.attributes["buffer"]
            for graph in executions(ir)
            for op in graph._ops
            if "buffer" in op.attributes
        }
        buffers = sorted(used, key=lambda b: b.remote_buffer_id)
        functions = shared_graphs(ir) if on_tiles else set()
        for graph in executions(ir):
            plan_of(graph)  # constants are real tensors, not those of the recording
        self.program = _Program(memory, buffers, (loads, stores), functions)
        self.compiled = self._compile(host, tiles)
        self._write()

    def _compile(self, host: HostSettings, tiles: TileSettings) -> CompiledStep:
        n = self.ir.instance_replication_factor
        inputs = [
            torch.zeros((k, n, *s.shape), dtype=s.dtype.carrier) for s, k in self.loads.items()
        ]
        names = [s.tensor_id for s in self.loads]
        model = self.program
        asked = StepToCompile(model, lambda flat: (list(model(*flat)), None), inputs, names)
        settings = StepSettings(host=host, tiles=tiles, runs_on_tiles=self.on_tiles)
        return compile_step(asked, settings)

    # -- memory --

    def _write(self) -> None:
        """Memory → session."""
        values = [self._value(owner, r) for owner, r in self.program.places]
        self.compiled.write_weights([], values)

    def _value(self, owner: Tensor | RemoteBuffer, replica: int) -> torch.Tensor:
        if isinstance(owner, RemoteBuffer):
            return torch.stack([self.memory.entry(owner, i)[replica] for i in range(owner.entries)])
        return self.memory.variables[owner][replica]

    def _read(self) -> None:
        """Session → memory: on the host the tensors themselves."""
        _, held = self.compiled.session.read_weights()
        for (owner, r), value in zip(self.program.places, held[0], strict=False):
            if isinstance(owner, RemoteBuffer):
                for i in range(owner.entries):
                    self.memory.entry(owner, i)[r] = value[i]
            else:
                own = self.memory.variables[owner]
                own[r] = value.to(own[r].dtype)

    # -- running --

    def run(self, inputs: Mapping[Any, np.ndarray], outputs: Mapping[Any, np.ndarray]) -> None:
        """One run, on arrays of the host."""
        if self.memory.was_written:
            self._write()
            self.memory.was_written = False
        n, given = self.ir.instance_replication_factor, []
        for stream, k in self.loads.items():
            array = inputs[stream].reshape(-1, n, *stream.shape)
            given.append(to_carrier(array[:k], stream.dtype))
        found: list[torch.Tensor] = []
        self.compiled.session.run([given], lambda _number, results: found.extend(results))
        for stream, value in zip(self.stores, found, strict=True):
            array = outputs[stream].reshape(-1, n, *stream.shape)
            array[: len(value)] = from_carrier(value.to(stream.dtype.carrier), stream.dtype)
        self._read()

    @property
    def is_on_host(self) -> bool:
        return isinstance(self.compiled.session, HostSession)
