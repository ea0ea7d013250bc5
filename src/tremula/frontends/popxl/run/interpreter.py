"""Runs a program literally: one operation after the other, as they were made, on real memory.

A value is a list with a tensor for each replica: a lane. All replicas take a step before any takes
the next, so a collective finds the operands of its group. This is the meaning of a program:
compiled forms, which have one lane, are compared with it.
"""

import json
from collections.abc import Callable

import torch

from tremula.frontends.popxl.core.aliases import Aliases, aliases_of, written_operands
from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import to_carrier, wrapped
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.streams import Streams
from tremula.ir.ops import markers  # noqa: F401  registers tremula::print_tensor

# Attributes of print_tensor that say how numbers look.
PRINT_FORM = (
    "summarise_threshold", "edge_items", "max_line_width", "digits", "float_format", "separator",
    "open_bracket", "close_bracket",
)  # fmt: skip
Value = list[torch.Tensor]
Frame = dict[Tensor, Value]


class _Plan:
    """What running a graph needs to know, computed once."""

    def __init__(self, graph: Graph):
        self.n_ops = len(graph.ops)
        self.aliases: Aliases = aliases_of(graph)
        self.constants = {c: to_carrier(c.data, c.dtype) for c in graph.constants}
        self.written_constants = {c for c in self.constants if c in self.aliases.written}
        self.joined = [op for op in graph.ops if op.kind == "ConcatInplace"]
        self.last_uses = _last_uses(graph)


def _last_uses(graph: Graph) -> list[list[Tensor]]:
    """Tensors that no operation behind each one reads."""
    last: dict[Tensor, int] = {}
    for i, op in enumerate(graph.ops):
        last.update(dict.fromkeys(op.inputs, i))
        last.update({t: i for t in op.outputs if t not in last})
    outputs = set(graph.outputs)
    result: list[list[Tensor]] = [[] for _ in graph.ops]
    for t, i in last.items():
        if t not in outputs:
            result[i].append(t)
    return result


def _keep_joined(plan: _Plan, op: Op, frame: Frame) -> None:
    """What an operation wrote to tensors that were joined in place, or to the whole, in both."""
    root = plan.aliases.root
    written = {root(op.inputs[i]) for i in written_operands(op)}
    for join in plan.joined if written else ():
        (whole,) = join.outputs
        if whole not in frame:
            continue
        axis = join.attributes["axis"] % whole.rank - whole.rank  # from the end: lanes may be rows
        sizes = [t.shape[axis] for t in join.inputs]
        for r, value in enumerate(frame[whole]):
            for t, part in zip(join.inputs, torch.split(value, sizes, axis), strict=True):
                own = frame[t][r]
                if root(whole) in written:
                    own.copy_(part)
                elif root(t) in written:
                    part.copy_(own)


def plan_of(graph: Graph) -> _Plan:
    if graph.plan is None:
        graph.plan = _Plan(graph)
    return graph.plan


class Interpreter:
    """The replicas of a program, with their memory."""

    def __init__(self, memory: DeviceMemory):
        self.memory = memory
        self.replicas = list(range(memory.n_replicas))  # those that run now
        self.streams: Streams | None = None

    @property
    def n_lanes(self) -> int:
        """How many tensors a value is."""
        return len(self.replicas)

    @torch.no_grad()
    def run(self, graph: Graph, streams: Streams) -> None:
        self.streams = streams
        self._run_ops(graph, self.variables())

    def _run_ops(self, graph: Graph, frame: Frame) -> None:
        plan = plan_of(graph)
        for c, value in plan.constants.items():
            value = self.constant(value)
            is_written = c in plan.written_constants
            frame[c] = [value.clone() if is_written else value for _ in range(self.n_lanes)]
        for op, dead in zip(graph.ops, plan.last_uses, strict=True):
            self.run_op(op, frame)
            if plan.joined:
                _keep_joined(plan, op, frame)
                continue  # joined tensors are looked at until the end
            for t in dead:
                frame.pop(t, None)

    def run_op(self, op: Op, frame: Frame) -> None:
        """Run one operation on the values in a frame, which gets its results."""
        values = [frame[t] for t in op.inputs]
        results = _STEPS.get(op.kind, _compute)(self, op, values)
        frame.update(zip(op.outputs, results, strict=True))

    # -- what forms with one lane do in another way --

    def variables(self) -> Frame:
        return {t: list(value.unbind()) for t, value in self.memory.variables.items()}

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A constant as operations take it."""
        return value

    def zeros(self, t: Tensor) -> torch.Tensor:
        """A lane of a new tensor."""
        return torch.zeros(t.shape, dtype=t.dtype.carrier)

    def compute(self, op: Op, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """An operation that is a function, on one lane of each operand."""
        results = op.compute(inputs)
        flat = results if isinstance(results, list | tuple) else (results,)
        return [_in_type(op, t, result) for t, result in zip(op.outputs, flat, strict=True)]

    def collective(self, op: Op, value: Value) -> Value:
        """An operation on the values of all replicas."""
        if self.n_lanes != self.memory.n_replicas:
            raise RuntimeError(
                f"{op.kind} needs all replicas, but only {self.replicas} take this branch"
            )
        assert op.row.compute is not None, "collectives are computed"
        own = self.memory.own
        result = op.row.compute(op, own.gathered(torch.stack(value)))
        return list(result[own.rows].unbind())

    def printed(self, value: Value, title: str, form: str) -> Value:
        """What is printed to standard error, as tiles print."""
        own = self.memory.own
        is_one = own.n_total == 1
        titles = [title if is_one else f"[{own.first + r}] {title}" for r in self.replicas]
        return [
            torch.ops.tremula.print_tensor(v, own, form, False)
            for own, v in zip(titles, value, strict=True)
        ]

    def call_op(self, op: Op, values: list[Value]) -> list[Value]:
        """Run the graph of a call."""
        return self.call(op.graphs[0], values, modified_inputs(op))

    def call(self, graph: Graph, arguments: list[Value], by_reference: set[int]) -> list[Value]:
        """Run a graph; what it writes is copied first, unless it was passed by reference."""
        plan = plan_of(graph)
        frame: Frame = {}
        for i, (t, value) in enumerate(zip(graph.inputs, arguments, strict=True)):
            is_copied = i in plan.aliases.written_inputs and i not in by_reference
            frame[t] = [v.clone() for v in value] if is_copied else value
        self._run_ops(graph, frame)
        return [
            [v.clone() for v in frame[t]] if i in plan.aliases.borrowed_outputs else frame[t]
            for i, t in enumerate(graph.outputs)
        ]

    def loop(self, op: Op, values: list[Value]) -> list[Value]:
        """Rounds of a graph: its outputs are the first inputs of the next."""
        graph = op.graphs[0]
        n, by_reference = len(graph.outputs), modified_inputs(op)
        carried = [
            value if i in by_reference else [v.clone() for v in value]
            for i, value in enumerate(values[:n])
        ]
        for _ in range(op.attributes["repeat_count"]):
            carried = self.call(graph, [*carried, *values[n:]], by_reference)
        return carried

    def branch(self, op: Op, values: list[Value]) -> list[Value]:
        """Each replica's branch; those of one choice go together."""
        places = dict(op.layout)
        choices = [bool(v.reshape(()).item()) for v in values[places["cond"]]]
        results: list[Value] = [[torch.empty(0)] * len(choices) for _ in op.outputs]
        for choice, name, graph in ((True, "then", op.graphs[0]), (False, "else", op.graphs[1])):
            chosen = [i for i, c in enumerate(choices) if c is choice]
            if not chosen:
                continue
            arguments = [[values[p][i] for i in chosen] for p in places[name]]
            matches = self.call_some(graph, arguments, chosen)
            for result, value in zip(results, matches, strict=True):
                for i, v in zip(chosen, value, strict=True):
                    result[i] = v
        return results

    def call_some(self, graph: Graph, arguments: list[Value], chosen: list[int]) -> list[Value]:
        """Run a graph on some of the replicas that run now."""
        everybody = self.replicas
        self.replicas = [everybody[i] for i in chosen]
        try:
            return self.call(graph, arguments, set())
        finally:
            self.replicas = everybody

    def read_remote(self, buffer: RemoteBuffer, offsets: Value) -> Value:
        """A copy of an entry for each replica."""
        return [entry[r].clone() for r, entry in self._entries(buffer, offsets)]

    def write_remote(self, buffer: RemoteBuffer, offsets: Value, values: Value) -> None:
        for value, (r, entry) in zip(values, self._entries(buffer, offsets), strict=True):
            entry[r].copy_(value)

    def _entries(self, buffer: RemoteBuffer, offsets: Value) -> list[tuple[int, torch.Tensor]]:
        """For each replica, its number and the entry that its offset chooses."""
        result = []
        for r, offset in zip(self.replicas, offsets, strict=True):
            index = int(offset.reshape(()).item())
            buffer.check_offset(index)
            result.append((r, self.memory.entry(buffer, index)))
        return result


Step = Callable[[Interpreter, Op, list[Value]], list[Value]]
_STEPS: dict[str, Step] = {}


def step(*kinds: str) -> Callable[[Step], Step]:
    """How operations of some kinds run, which are not functions of one replica's tensors."""

    def add(function: Step) -> Step:
        _STEPS.update(dict.fromkeys(kinds, function))
        return function

    return add


def _compute(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    """A function of tensors, lane by lane; a collective, of all of them."""
    if op.row.is_collective:
        result = machine.collective(op, values[0])
        return [_written(values[0], result) if op.row.modifies else result]
    lanes = [machine.compute(op, [v[i] for v in values]) for i in range(machine.n_lanes)]
    return [list(value) for value in zip(*lanes, strict=True)]


def _written(target: Value, value: Value) -> Value:
    for own, new in zip(target, value, strict=True):
        own.copy_(new)
    return target


def _in_type(op: Op, t: Tensor, result: torch.Tensor) -> torch.Tensor:
    if not t.dtype.is_wrapped or op.row.is_view:
        return result
    is_written = op.row.modifies and not op.row.gives_new
    return result.copy_(wrapped(result, t.dtype)) if is_written else wrapped(result, t.dtype)


@step("Init")
def _init(machine: Interpreter, op: Op, _values: list[Value]) -> list[Value]:
    return [[machine.zeros(op.outputs[0]) for _ in range(machine.n_lanes)]]


@step("HostLoad")
def _host_load(machine: Interpreter, op: Op, _values: list[Value]) -> list[Value]:
    assert machine.streams is not None, "a run has buffers"
    return [machine.streams.load(op.attributes["stream"], machine.replicas)]


@step("HostStore")
def _host_store(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    assert machine.streams is not None, "a run has buffers"
    machine.streams.store(op.attributes["stream"], machine.replicas, values[0])
    return []


@step("RemoteLoad")
def _remote_load(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    return [machine.read_remote(op.attributes["buffer"], values[1])]


@step("RemoteLoadInplace")
def _remote_load_(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    return [_written(values[0], machine.read_remote(op.attributes["buffer"], values[1]))]


@step("RemoteStore")
def _remote_store(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    machine.write_remote(op.attributes["buffer"], values[1], values[0])
    return []


@step("RemoteCodeLoad")
def _nothing(_machine: Interpreter, _op: Op, _values: list[Value]) -> list[Value]:
    return []


@step("Call")
def _call(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    return machine.call_op(op, values)


@step("Loop")
def _loop(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    return machine.loop(op, values)


@step("If")
def _if(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    return machine.branch(op, values)


@step("PrintTensor")
def _print(machine: Interpreter, op: Op, values: list[Value]) -> list[Value]:
    if not op.attributes["print_self"]:
        return [[v.clone() for v in values[0]]]
    form = json.dumps({name: op.attributes[name] for name in PRINT_FORM})
    return [machine.printed(values[0], op.attributes["title"], form)]
