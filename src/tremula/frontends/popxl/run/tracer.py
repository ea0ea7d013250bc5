"""A program as one function of tensors: what capture records of it.

The interpreter runs once, on tensors without values, with a single lane: the only replica, or each
of many as it sees itself, which is what tiles run. Loops of many operations become loops of the
recorded program: what a round reads from streams are rows that go in, what it writes to memory is
state that goes from round to round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.streams import Stream
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.ops.choices import choices_of
from tremula.frontends.popxl.run.interpreter import Frame, Interpreter, Value, plan_of
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.tile_collectives import on_tiles
from tremula.ir.capture.bodies import record_cond, record_function, record_scan
from tremula.ir.recording import Recording, active, choosing

# A loop of fewer operations in all is written out.
MAX_UNROLLED = 64


@dataclass
class TracedStreams:
    """Elements that go in, and those that were stored, as `[elements, …]`."""

    inputs: dict[Stream, torch.Tensor]
    places: dict[Stream, int] = field(default_factory=dict)
    stored: dict[Stream, list[torch.Tensor]] = field(default_factory=dict)

    def load(self, stream: Stream, replicas: list[int]) -> Value:  # noqa: ARG002
        return [self.take(stream, 1)[0]]

    def store(self, stream: Stream, replicas: list[int], values: Value) -> None:  # noqa: ARG002
        self.stored.setdefault(stream, []).append(values[0].clone()[None])

    def take(self, stream: Stream, n: int) -> torch.Tensor:
        """The next n elements together."""
        place = self.places.get(stream, 0)
        self.places[stream] = place + n
        return self.inputs[stream][place : place + n]

    def outputs(self, stream: Stream) -> torch.Tensor:
        parts = self.stored[stream]
        return torch.cat(parts) if len(parts) > 1 else parts[0]


class Tracer(Interpreter):
    """The interpreter on tensors of a recording; remote buffers are tensors `[entries, …]`."""

    n_lanes = 1  # type: ignore[assignment]

    def __init__(
        self,
        memory: DeviceMemory,
        variable_values: dict[Tensor, torch.Tensor],
        remote: dict[int, torch.Tensor],
        functions: set[Graph],
    ):
        super().__init__(memory)
        self.variable_values, self.remote = variable_values, remote  # variables; buffers by number
        self.functions = functions  # graphs that stay functions of the program
        self._keys: dict[tuple[Graph, tuple[int, ...]], str] = {}
        # By recorder, by id of the value.
        self._constants: dict[object, dict[int, torch.Tensor]] = {}

    def variables(self) -> Frame:
        return {t: [value] for t, value in self.variable_values.items()}

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A constant of the recording: one for each that the program has."""
        state = active()
        if state is None:
            return value
        known = self._constants.setdefault(state.recorder, {})
        if id(value) not in known:
            known[id(value)] = state.recorder.bring_in(value)
        return known[id(value)]

    def collective(self, op: Op, value: Value) -> Value:
        if self.memory.n_replicas == 1:
            return super().collective(op, value)
        return [on_tiles(op, value[0])]

    def compute(self, op: Op, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with choosing(choices_of(op)):
            return super().compute(op, inputs)

    def printed(self, value: Value, title: str, form: str) -> Value:
        return [torch.ops.tremula.print_tensor(value[0], title, form, False)]

    def call(self, graph: Graph, arguments: list[Value], by_reference: set[int]) -> list[Value]:
        state = active()
        if state is None or graph not in self.functions:
            return super().call(graph, arguments, by_reference)
        written = sorted(plan_of(graph).aliases.written_inputs & by_reference)
        inputs = [value[0] for value in arguments]
        result = torch.ops.tremula.call(inputs, self._key(state, graph, inputs, written))
        n = len(graph.outputs)
        for i, value in zip(written, result[n:], strict=True):
            inputs[i].copy_(value)
        return [[value] for value in result[:n]]

    def _key(
        self, state: Recording, graph: Graph, inputs: list[torch.Tensor], written: list[int]
    ) -> str:
        """The function that a graph is: recorded once, called from everywhere."""
        key = (graph, tuple(written))
        if key not in self._keys:

            def body(*parts: torch.Tensor) -> list[torch.Tensor]:
                values = [[p.clone() if i in written else p] for i, p in enumerate(parts)]
                result = Interpreter.call(self, graph, values, set(written))
                return [value[0] for value in [*result, *(values[i] for i in written)]]

            self._keys[key] = record_function(state, body, inputs)
        return self._keys[key]

    # -- remote memory --

    def read_remote(self, buffer: RemoteBuffer, offsets: Value) -> Value:
        rows = self.remote[buffer.remote_buffer_id]
        return [torch.index_select(rows, 0, offsets[0].reshape(1).long())[0]]

    def write_remote(self, buffer: RemoteBuffer, offsets: Value, values: Value) -> None:
        rows = self.remote[buffer.remote_buffer_id]
        rows.index_copy_(0, offsets[0].reshape(1).long(), values[0][None])

    # -- loops and branches --

    def loop(self, op: Op, values: list[Value]) -> list[Value]:
        graph, count = op.graphs[0], op.attributes["repeat_count"]
        state = active()
        if state is None or count * size_of(graph) <= MAX_UNROLLED:
            return super().loop(op, values)
        return _TracedLoop(self, op, values).record(state)

    def branch(self, op: Op, values: list[Value]) -> list[Value]:
        """A branch of the program; replicas that may disagree compute both, and choose."""
        places, state = dict(op.layout), active()
        (condition,) = values[places["cond"]]
        arguments = [[values[p][0] for p in places[name]] for name in ("then", "else")]
        first, second = (self._body(graph) for graph in op.graphs)
        if state is None or self.memory.n_replicas > 1:
            made = zip(first(*arguments[0]), second(*arguments[1]), strict=True)
            return [[self.chosen(condition, a, b)] for a, b in made]
        is_true = condition.reshape(()).bool()
        result = record_cond(state, is_true, first, arguments[0], second, arguments[1])
        return [[value] for value in result]

    def chosen(self, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(condition.reshape(()).bool(), a, b)

    def _body(self, graph: Graph) -> Callable[..., list[torch.Tensor]]:
        def run(*parts: torch.Tensor) -> list[torch.Tensor]:
            result = self.call(graph, [[part] for part in parts], set())
            return [value[0] for value in result]

        return run


class _TracedLoop:
    """A loop of a recorded program: its state, its rows, and where they come from."""

    def __init__(self, tracer: Tracer, op: Op, values: list[Value]):
        self.tracer, self.op, self.values = tracer, op, values
        self.graph, self.count = op.graphs[0], op.attributes["repeat_count"]
        self.n_carried = len(self.graph.outputs)
        self.by_reference = modified_inputs(op)
        self.written = sorted(i for i in self.by_reference if i >= self.n_carried)
        self.buffers = sorted(_stored_buffers(self.graph))
        self.loads, self.stores = _streams(self.graph)

    def record(self, state: Recording) -> list[Value]:
        streams = self.tracer.streams
        assert isinstance(streams, TracedStreams), "a tracer runs on traced streams"
        carried = [value[0] for value in self.values[: self.n_carried]]
        memory = [self.values[i][0] for i in self.written]
        memory += [self.tracer.remote[b] for b in self.buffers]
        rows = [
            streams.take(s, k * self.count).unflatten(0, (self.count, k))
            for s, k in self.loads.items()
        ]
        result = record_scan(state, self._body, [*carried, *memory], rows, self.count)
        left = result[self.n_carried :]
        for target, value in zip(memory, left, strict=False):
            target.copy_(value)
        for stream, made in zip(self.stores, left[len(memory) :], strict=True):
            streams.stored.setdefault(stream, []).append(made.flatten(0, 1))
        return [[value] for value in result[: self.n_carried]]

    def _body(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        tracer = self.tracer
        n_state = self.n_carried + len(self.written) + len(self.buffers)
        state = [part.clone() for part in parts[:n_state]]
        carried, memory = state[: self.n_carried], state[self.n_carried :]
        values = [*([t] for t in carried), *self.values[self.n_carried :]]
        for i, value in zip(self.written, memory, strict=False):
            values[i] = [value]
        remote = dict(zip(self.buffers, memory[len(self.written) :], strict=True))
        before = tracer.streams, tracer.remote
        inner = TracedStreams(dict(zip(self.loads, parts[n_state:], strict=True)))
        tracer.streams, tracer.remote = inner, {**tracer.remote, **remote}
        try:
            result = tracer.call(self.graph, values, self.by_reference)
        finally:
            tracer.streams, tracer.remote = before
        stored = [inner.outputs(stream) for stream in self.stores]
        return [*(value[0] for value in result), *memory, *stored]


def size_of(graph: Graph) -> int:
    """Operations that one execution of a graph takes."""
    total = len(graph.ops)
    for op in graph.ops:
        for called in op.graphs:
            total += op.attributes.get("repeat_count", 1) * size_of(called)
    return total


def _stored_buffers(graph: Graph) -> set[int]:
    """Numbers of remote buffers that a graph, or one it calls, stores to."""
    result = {
        op.attributes["buffer"].remote_buffer_id for op in graph.ops if op.kind == "RemoteStore"
    }
    for called in graph.called_graphs:
        result |= _stored_buffers(called)
    return result


def _streams(graph: Graph) -> tuple[dict[Stream, int], dict[Stream, int]]:
    """Elements that one execution of a graph loads and stores, by stream."""
    loads: dict[Stream, int] = {}
    stores: dict[Stream, int] = {}
    for op in graph.ops:
        if op.kind in {"HostLoad", "HostStore"}:
            into = loads if op.kind == "HostLoad" else stores
            into[op.attributes["stream"]] = into.get(op.attributes["stream"], 0) + 1
        for called in op.graphs:
            for into, result in zip((loads, stores), _streams(called), strict=True):
                for stream, n in result.items():
                    times = n * op.attributes.get("repeat_count", 1)
                    into[stream] = into.get(stream, 0) + times
    return loads, stores
