"""A program as one function of tensors: what capture records of it.

The interpreter runs once, on tensors without values. Loops of many operations become loops of the
recorded program: what a round reads from streams are rows that go in, what it writes to memory is
state that goes from round to round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.run.interpreter import Interpreter, Value, plan_of
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.ir.capture.bodies import record_cond, record_function, record_scan
from tremula.ir.recording import active

# A loop of fewer operations in all is written out.
MAX_UNROLLED = 64


@dataclass
class TracedStreams:
    """Elements that go in, and those that were stored, as `[elements, replicas, …]`."""

    inputs: dict[Any, torch.Tensor]
    places: dict[Any, int] = field(default_factory=dict)
    stored: dict[Any, list[torch.Tensor]] = field(default_factory=dict)

    def load(self, stream: Any, replicas: list[int]) -> Value:
        place = self.places.get(stream, 0)
        self.places[stream] = place + 1
        return [self.inputs[stream][place, r] for r in replicas]

    def store(self, stream: Any, replicas: list[int], values: Value) -> None:  # noqa: ARG002
        self.stored.setdefault(stream, []).append(torch.stack(values)[None])

    def take(self, stream: Any, n: int) -> torch.Tensor:
        """The next n elements together."""
        place = self.places.get(stream, 0)
        self.places[stream] = place + n
        return self.inputs[stream][place : place + n]

    def outputs(self, stream: Any) -> torch.Tensor:
        parts = self.stored[stream]
        return torch.cat(parts) if len(parts) > 1 else parts[0]


class Tracer(Interpreter):
    """The interpreter on tensors of a recording; remote buffers are tensors `[entries, …]`."""

    def __init__(
        self, memory: DeviceMemory, remote: dict[int, Value], functions: set[Graph] | None = None
    ):
        super().__init__(memory)
        self.functions = functions or set()  # graphs that stay functions of the program
        self._keys: dict[Any, str] = {}
        self.remote = remote  # by buffer and replica
        self._constants: dict[Any, dict[int, torch.Tensor]] = {}  # by recorder, by id of the value

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A constant of the recording: one for each that the program has."""
        state = active()
        if state is None:
            return value
        known = self._constants.setdefault(state.recorder, {})
        if id(value) not in known:
            known[id(value)] = state.recorder.bring_in(value)
        return known[id(value)]

    def call(self, graph: Graph, arguments: list[Value], by_reference: set[int]) -> list[Value]:
        state = active()
        if state is None or graph not in self.functions:
            return super().call(graph, arguments, by_reference)
        written = sorted(plan_of(graph).aliases.written_inputs & by_reference)
        results: list[Value] = [[] for _ in graph._outputs]
        for r in range(len(self.replicas)):
            inputs = [value[r] for value in arguments]
            found = torch.ops.tremula.call(inputs, self._key(state, graph, inputs, written, r))
            for result, value in zip(results, found, strict=False):
                result.append(value)
            for i, value in zip(written, found[len(results) :], strict=True):
                inputs[i].copy_(value)
        return results

    def _key(
        self, state: Any, graph: Graph, inputs: list[torch.Tensor], written: list[int], replica: int
    ) -> str:
        """The function that a graph is: recorded once, called from everywhere."""
        key = (graph, tuple(written))
        if key not in self._keys:

            def body(*parts: torch.Tensor) -> list[torch.Tensor]:
                values = [[p.clone() if i in written else p] for i, p in enumerate(parts)]
                everybody, self.replicas = self.replicas, [self.replicas[replica]]
                try:
                    found = Interpreter.call(self, graph, values, set(written))
                finally:
                    self.replicas = everybody
                return [value[0] for value in [*found, *(values[i] for i in written)]]

            self._keys[key] = record_function(state, body, inputs)
        return self._keys[key]

    def read_remote(self, buffer: RemoteBuffer, offsets: Value) -> Value:
        held = self.remote[buffer.remote_buffer_id]
        return [
            torch.index_select(held[r], 0, offset.reshape(1).long())[0]
            for r, offset in zip(self.replicas, offsets, strict=True)
        ]

    def write_remote(self, buffer: RemoteBuffer, offsets: Value, values: Value) -> None:
        held = self.remote[buffer.remote_buffer_id]
        for r, offset, value in zip(self.replicas, offsets, values, strict=True):
            held[r].index_copy_(0, offset.reshape(1).long(), value[None])

    def loop(self, op: Op, values: list[Value]) -> list[Value]:
        graph, count = op.graphs[0], op.attributes["repeat_count"]
        state = active()
        if state is None or count * size_of(graph) <= MAX_UNROLLED:
            return super().loop(op, values)
        return _Rounds(self, op, values).record(state)

    def branch(self, op: Op, values: list[Value]) -> list[Value]:
        places, state = dict(op.layout), active()
        if state is None:
            return super().branch(op, values)
        results: list[Value] = [[] for _ in op.outputs]
        for i, condition in enumerate(values[places["cond"]]):
            arguments = [[values[p][i] for p in places[name]] for name in ("then", "else")]
            bodies = [self._body(graph, i) for graph in op.graphs]
            found = record_cond(
                state,
                condition.reshape(()).bool(),
                bodies[0],
                arguments[0],
                bodies[1],
                arguments[1],
            )
            for result, value in zip(results, found, strict=True):
                result.append(value)
        return results

    def _body(self, graph: Graph, replica: int) -> Callable[..., list[torch.Tensor]]:
        def run(*parts: torch.Tensor) -> list[torch.Tensor]:
            found = self.call_some(graph, [[part] for part in parts], [replica])
            return [value[0] for value in found]

        return run


class _Rounds:
    """A loop of a recorded program: its state, its rows, and where they come from."""

    def __init__(self, tracer: Tracer, op: Op, values: list[Value]):
        self.tracer, self.op, self.values = tracer, op, values
        self.graph, self.count = op.graphs[0], op.attributes["repeat_count"]
        self.n_carried = len(self.graph._outputs)
        self.by_reference = modified_inputs(op)
        self.written = sorted(i for i in self.by_reference if i >= self.n_carried)
        self.buffers = sorted(_stored_buffers(self.graph))
        self.loads, self.stores = _streams(self.graph)

    def record(self, state: Any) -> list[Value]:
        n = len(self.tracer.replicas)
        streams = self.tracer.streams
        assert isinstance(streams, TracedStreams), "a tracer runs on traced streams"
        carried = [t for value in self.values[: self.n_carried] for t in value]
        memory = [t for i in self.written for t in self.values[i]]
        remote = [t for b in self.buffers for t in self.tracer.remote[b]]
        rows = [
            streams.take(s, k * self.count).unflatten(0, (self.count, k))
            for s, k in self.loads.items()
        ]
        found = record_scan(state, self._body, [*carried, *memory, *remote], rows, self.count)
        results = _by_value(found, self.n_carried, n)
        left = found[self.n_carried * n :]
        for target, value in zip([*memory, *remote], left, strict=False):
            target.copy_(value)
        for stream, made in zip(self.stores, left[len(memory) + len(remote) :], strict=True):
            streams.stored.setdefault(stream, []).append(made.flatten(0, 1))
        return results

    def _body(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        tracer, n = self.tracer, len(self.tracer.replicas)
        n_state = self.n_carried + len(self.written) + len(self.buffers)
        state = _by_value([part.clone() for part in parts[: n_state * n]], n_state, n)
        carried, memory = state[: self.n_carried], state[self.n_carried :]
        values = [*carried, *self.values[self.n_carried :]]
        for i, value in zip(self.written, memory, strict=False):
            values[i] = value
        before = tracer.streams, tracer.remote
        tracer.remote = {
            **tracer.remote,
            **dict(zip(self.buffers, memory[len(self.written) :], strict=True)),
        }
        inner = TracedStreams(dict(zip(self.loads, parts[n_state * n :], strict=True)))
        tracer.streams = inner
        try:
            found = tracer.call(self.graph, values, self.by_reference)
        finally:
            tracer.streams, tracer.remote = before
        flat = [t for value in [*found, *memory] for t in value]
        return [*flat, *(inner.outputs(stream) for stream in self.stores)]


def _by_value(flat: list[torch.Tensor], n_values: int, n_replicas: int) -> list[Value]:
    return [list(flat[i * n_replicas : (i + 1) * n_replicas]) for i in range(n_values)]


def size_of(graph: Graph) -> int:
    """Operations that one execution of a graph takes."""
    total = len(graph._ops)
    for op in graph._ops:
        for called in op.graphs:
            total += op.attributes.get("repeat_count", 1) * size_of(called)
    return total


def _stored_buffers(graph: Graph) -> set[int]:
    """Numbers of remote buffers that a graph, or one it calls, stores to."""
    found = {
        op.attributes["buffer"].remote_buffer_id for op in graph._ops if op.kind == "RemoteStore"
    }
    for called in graph.called_graphs:
        found |= _stored_buffers(called)
    return found


def _streams(graph: Graph) -> tuple[dict[Any, int], dict[Any, int]]:
    """Elements that one execution of a graph loads and stores, by stream."""
    loads: dict[Any, int] = {}
    stores: dict[Any, int] = {}
    for op in graph._ops:
        if op.kind in {"HostLoad", "HostStore"}:
            into = loads if op.kind == "HostLoad" else stores
            into[op.attributes["stream"]] = into.get(op.attributes["stream"], 0) + 1
        for called in op.graphs:
            for into, found in zip((loads, stores), _streams(called), strict=True):
                for stream, n in found.items():
                    times = n * op.attributes.get("repeat_count", 1)
                    into[stream] = into.get(stream, 0) + times
    return loads, stores
