"""A step as a sequence of parts, of which equal ones are compiled once.

The layers of a model are modules numbered by their path: `encoder.layer.0`, `encoder.layer.1`, …
The graph of a step is cut where the number changes, in the forward and in the backward pass. Parts
that have the same operations on operands of the same shapes are one function, called several times:

    embedding │ layer 0 │ layer 1 │ layer 2 │ loss │ layer 2' │ layer 1' │ layer 0' │ embedding'
        A          B         B         B       C         D          D          D          E
"""

import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from tremula.ir.host.compiled.programs import (
    FunctionCall,
    Mask,
    ProgramRecord,
    constant_of,
    fits_as_constants,
)
from tremula.ir.host.start_phases import start_phase
from tremula.ir.host.transfer.outputs import OutputHook, last_maker
from tremula.ir.origin import ORIGIN
from tremula.ir.step import OUTPUT, CapturedStep

_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")
_FEW = 6  # nodes: a shorter run belongs to the part before it
_LEAST_EQUAL = 3  # parts, for cutting to be worthwhile

Label = tuple[str, int] | None  # phase and number of a layer


@dataclass(frozen=True)
class Part:
    """Consecutive nodes of a graph: what they read from before, and what is read after them."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    key: tuple  # equal for parts that compute the same

    def module(self) -> fx.GraphModule:
        """The part as a function of its inputs."""
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for index, node in enumerate(self.inputs):
            copies[node] = graph.placeholder(f"input_{index}")
            copies[node].meta.update(node.meta)
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in self.outputs])
        return fx.GraphModule(torch.nn.Module(), graph)


# -- cutting ---------------------------------------------------------------------------------------


def equal_parts(step: CapturedStep) -> list[Part]:
    """The parts of a step in order; empty if too few of them are equal."""
    labels = _labels(step.graph)
    if not any(labels.values()):
        return []
    parts = [_part(run) for run in _runs(step.graph, labels)]
    if any(_has_several(node) for part in parts for node in part.inputs):
        return []
    counts = Counter(part.key for part in parts)
    return parts if max(counts.values(), default=0) >= _LEAST_EQUAL else []


def parts_at_outputs(step: CapturedStep) -> list[Part]:
    """Two parts: up to the last output of forward, and the rest; empty if there is little rest.

    Outputs of a step that is one function would be there when all of it is.
    """
    outputs = {step.results()[position] for position, _ in step.results_of_kind(OUTPUT)}
    nodes = [node for node in step.graph.nodes if node.op == "call_function"]
    last = last_maker([(node,) for node in nodes], outputs)
    forward = set(nodes[: last + 1])
    for node in nodes[last + 1 :]:  # a part of a result belongs to the operation that computes it
        if node.target is operator.getitem and node.args[0] in forward:
            forward.add(node)
    parts = [[n for n in nodes if n in forward], [n for n in nodes if n not in forward]]
    if min(map(len, parts)) <= _FEW:
        return []
    return [_part(nodes) for nodes in parts]


def _has_several(node: fx.Node) -> bool:
    """Whether a node returns several tensors, which cannot be an input of another part."""
    return any(user.target is operator.getitem for user in node.users)


def _labels(graph: fx.Graph) -> dict[fx.Node, Label]:
    """The layer of each operation: by the numbered path that most of them have."""
    paths: dict[fx.Node, tuple[str, str]] = {}
    for node in graph.nodes:
        origin = node.meta.get(ORIGIN)
        if node.op == "call_function" and origin is not None and origin.module:
            paths[node] = (origin.phase, origin.module)
    prefix = _most_frequent_prefix([path for _, path in paths.values()])
    labels: dict[fx.Node, Label] = {}
    before: Label = None
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            before = labels[node.args[0]]
        elif node in paths:
            phase, path = paths[node]
            match = re.match(re.escape(prefix) + r"\.(\d+)(\.|$)", path) if prefix else None
            before = (phase, int(match.group(1))) if match else None
        labels[node] = before  # operations that passes have inserted belong to those before them
    return labels


def _most_frequent_prefix(paths: Sequence[str]) -> str:
    """The part of paths before a number that most operations have, with at least three numbers."""
    counts: Counter[str] = Counter()
    numbers: dict[str, set[str]] = {}
    for path in paths:
        for match in _NUMBER.finditer(path):
            prefix = path[: match.start()]
            counts[prefix] += 1
            numbers.setdefault(prefix, set()).add(match.group(1))
    several = [p for p in counts if len(numbers[p]) >= _LEAST_EQUAL]
    return max(several, key=lambda p: (counts[p], -len(p)), default="")


def _runs(graph: fx.Graph, labels: dict[fx.Node, Label]) -> list[list[fx.Node]]:
    """Nodes with the same label one after another; short runs are joined to the one before."""
    runs: list[tuple[Label, list[fx.Node]]] = []
    for node in (n for n in graph.nodes if n.op == "call_function"):
        if runs and runs[-1][0] == labels[node]:
            runs[-1][1].append(node)
        else:
            runs.append((labels[node], [node]))
    joined: list[tuple[Label, list[fx.Node]]] = []
    for label, nodes in runs:
        is_short = len(nodes) < _FEW and joined
        if is_short or (joined and joined[-1][0] == label):
            joined[-1][1].extend(nodes)
        else:
            joined.append((label, nodes))
    return [nodes for _, nodes in joined]


def _part(nodes: list[fx.Node]) -> Part:
    inside = set(nodes)
    inputs = list(dict.fromkeys(x for n in nodes for x in n.all_input_nodes if x not in inside))
    outputs = [n for n in nodes if any(user not in inside for user in n.users)]
    return Part(tuple(nodes), tuple(inputs), tuple(outputs), _key(nodes, inputs, outputs))


def _key(nodes: list[fx.Node], inputs: list[fx.Node], outputs: list[fx.Node]) -> tuple:
    """What a part computes, whatever its nodes are called."""
    names = {node: f"%{index}" for index, node in enumerate([*inputs, *nodes])}
    calls = tuple(
        (n.target, repr(fx.map_arg((n.args, n.kwargs), lambda x: _Name(names[x])))) for n in nodes
    )
    return tuple(map(_kind_of, inputs)), calls, tuple(names[node] for node in outputs)


class _Name(str):
    """A node in the text of a call."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _kind_of(node: fx.Node) -> object:
    """What is known of an operand; what it really is decides when a part is called."""
    value = node.meta.get("val")
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else None


# -- running ---------------------------------------------------------------------------------------


class CompiledPart(Protocol):
    """A function that can be compiled before it is called."""

    @property
    def key(self) -> str: ...  # in the store of compiled functions; empty if it is not there
    def prepare(self, args: Sequence[Tensor]) -> None: ...
    def __call__(self, *args: Tensor) -> list[Tensor]: ...


Compile = Callable[[fx.GraphModule, int], CompiledPart]
PrepareAll = Callable[[Sequence[tuple[Any, Sequence[Tensor]]]], None]  # parts, and their operands


def prepare_each(parts: Sequence[tuple[CompiledPart, Sequence[Tensor]]]) -> None:
    """Compile one part after another."""
    for part, args in parts:
        part.prepare(args)


class PartedGraph:
    """Runs the parts of a step in order; each kind is compiled for the strides of its operands."""

    def __init__(
        self,
        step: CapturedStep,
        parts: Sequence[Part],
        compile_part: Compile,
        prepare_all: PrepareAll = prepare_each,
        hook: OutputHook | None = None,
    ):
        self._placeholders = step.placeholders()
        self._constants = [
            (node, step.constants[str(node.target)])
            for node in step.graph.nodes
            if node.op == "get_attr"
        ]
        self._results = step.results()
        self._parts = list(parts)
        self._require_results()
        self._dead_after = _dead_after(self._parts, self._results)
        self._hook = hook
        self._outputs = [self._results[position] for position, _ in step.results_of_kind(OUTPUT)]
        self._ends_outputs = last_maker([part.outputs for part in self._parts], self._outputs)
        self._compile = compile_part
        self._prepare_all = prepare_all
        self._compiled: dict[tuple, CompiledPart] = {}
        self._is_prepared = False
        self._called: list[CompiledPart] = []  # the functions of the parts, by the last call

    def _require_results(self) -> None:
        made = {node for part in self._parts for node in part.outputs}
        missing = [n for n in self._results if n.op == "call_function" and n not in made]
        if missing:
            names = ", ".join(node.name for node in missing)
            raise ValueError(
                f"none of the {len(self._parts)} parts computes {names}: a step that equal_parts "
                "does not cut must be compiled whole"
            )

    @property
    def n_compiled(self) -> int:
        return len(self._compiled)

    def prepare(self, args: Sequence[Tensor]) -> None:
        """Compile all parts without running any: tensors between them have shapes only."""
        fakes = FakeTensorMode(allow_non_fake_inputs=True)
        inputs = [fakes.from_tensor(x) for x in args]
        new: list[tuple[CompiledPart, Sequence[Tensor]]] = []
        shapes: dict[tuple, list[Tensor]] = {}  # what each kind of part results in

        def run(part: Part, inputs: list[Tensor]) -> list[Tensor]:
            key = _key_of_call(part, inputs)
            if key not in shapes:
                function = self._function(part, inputs)
                if function is not None:
                    new.append((function, inputs))
                with fakes, torch.no_grad():
                    shapes[key] = list(part.module()(*inputs))
            return shapes[key]

        with start_phase("find equal layers"):
            self._run(run, inputs)
        self._prepare_all(new)
        self._is_prepared = True

    def __call__(self, *args: Tensor) -> list[Tensor]:
        self._called = []

        def run(part: Part, inputs: list[Tensor]) -> list[Tensor]:
            self._called.append(self._nearest(part, inputs))
            return self._called[-1](*inputs)

        return self._run(run, args, self._hook)

    def record(self, masks: tuple[Mask, ...]) -> ProgramRecord | None:
        """The last call, to be repeated by another process; its last arguments are `masks`."""
        values = [value for _, value in self._constants]
        keys = [function.key for function in self._called]
        if not all(keys) or len(keys) != len(self._parts) or not fits_as_constants(values):
            return None
        made = [node for part in self._parts for node in part.outputs]
        nodes = [*self._placeholders, *(node for node, _ in self._constants), *made]
        numbers = {node: number for number, node in enumerate(nodes)}

        def of(some: Sequence[fx.Node]) -> tuple[int, ...]:
            return tuple(numbers[node] for node in some)

        steps = zip(keys, self._parts, self._dead_after, strict=True)
        calls = tuple(
            FunctionCall(key, of(p.inputs), of(p.outputs), of(dead)) for key, p, dead in steps
        )
        n_arguments = len(self._placeholders) - len(masks)
        constants = tuple(map(constant_of, values))
        return ProgramRecord(n_arguments, masks, constants, calls, of(self._results))

    def _run(
        self,
        run: Callable[[Part, list[Tensor]], list[Tensor]],
        args: Sequence[Tensor],
        hook: OutputHook | None = None,
    ) -> list[Tensor]:
        values: dict[fx.Node, Any] = dict(zip(self._placeholders, args, strict=True))
        values.update(self._constants)
        steps = zip(self._parts, self._dead_after, strict=True)
        for number, (part, dead) in enumerate(steps):
            results = run(part, [values[node] for node in part.inputs])
            values.update(zip(part.outputs, results, strict=True))
            if number == self._ends_outputs and hook is not None:
                hook(*(values[node] for node in self._outputs))
            for node in dead:
                del values[node]
        return [values[node] for node in self._results]

    def _nearest(self, part: Part, inputs: Sequence[Tensor]) -> CompiledPart:
        """The function of a part, or one for other strides: it copies what it reads then.

        Inductor may choose other strides for a result than ATen has; a copy takes microseconds.
        """
        key = _key_of_call(part, inputs)
        if key in self._compiled or not self._is_prepared:
            self._function(part, inputs)
            return self._compiled[key]
        for other, function in self._compiled.items():
            if other[0] == part.key and _without_strides(other) == _without_strides(key):
                return function
        self._function(part, inputs)
        return self._compiled[key]

    def _function(self, part: Part, inputs: Sequence[Tensor]) -> CompiledPart | None:
        """The new function of a part; None if an equal part has one already."""
        key = _key_of_call(part, inputs)
        if key in self._compiled:
            return None
        self._compiled[key] = self._compile(part.module(), len(part.outputs))
        return self._compiled[key]


def _key_of_call(part: Part, inputs: Sequence[Tensor]) -> tuple:
    return part.key, tuple((tuple(x.shape), x.stride(), x.dtype) for x in inputs)


def _without_strides(key: tuple) -> list[tuple]:
    return [(shape, dtype) for shape, _stride, dtype in key[1]]


def _dead_after(parts: Sequence[Part], results: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """The values that no part after each one reads: their memory can be used again."""
    made = {node for part in parts for node in part.outputs}
    last = {node: index for index, part in enumerate(parts) for node in part.inputs if node in made}
    dead: list[list[fx.Node]] = [[] for _ in parts]
    for node, index in last.items():
        if node not in set(results):
            dead[index].append(node)
    return dead
