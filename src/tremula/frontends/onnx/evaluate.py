"""Runs graphs, node by node, on PyTorch tensors: real ones, or those of a recording.

While a model is recorded, tensors of the model are fakes and have no values. What depends only on
shapes and constants is real: it is computed at once, outside the recording, and becomes a constant
of the program where an operation of the model reads it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from keyword import iskeyword

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tremula.base.errors import PoplarError
from tremula.frontends.onnx.context import NodeContext, outside_the_recording
from tremula.frontends.onnx.element_types import UNSIGNED, element_type, number_of, widened
from tremula.frontends.onnx.errors import OnnxError, UnsupportedOnnx
from tremula.frontends.onnx.functions import body_of_schema, schema_attributes
from tremula.frontends.onnx.graph import OnnxFunction, OnnxGraph, OnnxNode, needed_for
from tremula.frontends.onnx.table import Operator
from tremula.ir.recording import active

_FAILURES = (RuntimeError, IndexError, TypeError, ValueError, KeyError, AssertionError)


@dataclass
class Scope:
    """The values of a graph by name, inside those of the graph around it."""

    graph: OnnxGraph | None = None  # None in a function
    outer: "Scope | None" = None
    values: dict[str, object] = field(default_factory=dict)
    # What initialisers are when the model is imported: a recording does not know them.
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)  # of the call, in a function

    def holder(self, name: str) -> "Scope":
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope
            scope = scope.outer
        raise OnnxError(
            f"A node reads {name!r}, which nothing gives a value here.",
            hint="an optional output of another node may not have been computed",
        )

    def value(self, name: str) -> object:  # tensors, sequences of them, arrays of strings
        return self.holder(name).values[name]

    def constant(self, name: str) -> Tensor | None:
        return self.holder(name).constants.get(name)

    def type_of(self, name: str) -> int:
        """The declared element type of a value, else that of its tensor."""
        if not name:
            return 0
        holder = self.holder(name)
        declared = holder.graph.types.get(name, 0) if holder.graph else 0
        return declared or number_of(holder.values[name])


def is_live(value: object) -> bool:
    """Whether a value is being recorded: it has a shape and a type, and no values."""
    if isinstance(value, list | tuple):
        return any(map(is_live, value))
    return isinstance(value, FakeTensor)


class Evaluation:
    """One run of a model."""

    def __init__(self, device: torch.device | None = None):
        self.device = device  # of the recording; None without one

    def main(self, graph: OnnxGraph, scope: Scope, wanted: Sequence[str]) -> dict[str, object]:
        for node in needed_for(graph.nodes, wanted):
            self.node(node, scope)
        return {name: scope.value(name) for name in wanted}

    def body(self, graph: OnnxGraph, operands: Sequence[object], outer: Scope) -> list[object]:
        scope = Scope(graph, outer)
        scope.values.update(graph.initialisers)
        scope.values.update(zip((v.name for v in graph.inputs), operands, strict=False))
        names = [value.name for value in graph.outputs]
        result = self.main(graph, scope, names)
        return [result[name] for name in names]

    def function(
        self,
        function: OnnxFunction,
        operands: Sequence[object],
        attributes: Mapping[str, object],
        outputs: Sequence[str],
    ) -> list[object]:
        """The results of a call; outputs that it does not name are not computed."""
        merged = {**function.attributes, **attributes}
        known = {name: value for name, value in merged.items() if value is not None}
        scope = Scope(attributes=known)
        padded = [*operands, *[None] * (len(function.inputs) - len(operands))]
        scope.values.update(zip(function.inputs, padded, strict=False))
        named = zip(function.outputs, outputs, strict=False)
        wanted = [name if output else "" for name, output in named]
        for node in needed_for(function.nodes, filter(None, wanted)):
            self.node(node, scope)
        return [scope.value(name) if name else None for name in wanted]

    def node(self, node: OnnxNode, scope: Scope) -> None:
        with _named(node):
            try:
                results = self._results(node, scope)
            except PoplarError as error:
                error.add_note(f"in {node.label}")
                raise
            except _FAILURES as error:
                raise self._failure(node, scope, error) from error
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                scope.values[name] = _as_declared(value, scope, name)

    def _failure(self, node: OnnxNode, scope: Scope, error: Exception) -> OnnxError:
        kinds = [_kind(scope.value(name)) if name else "none" for name in node.inputs]
        return OnnxError(f"{node.label} of ({', '.join(kinds)}) failed: {error}")

    def _results(self, node: OnnxNode, scope: Scope) -> Sequence[object]:
        attributes = _attributes(node, scope)
        operands = [scope.value(name) if name else None for name in node.inputs]
        if node.operator is None:
            types = [scope.type_of(name) for name in node.inputs]
            function = node.function or body_of_schema(node, operands, types, attributes)
            return self.function(function, operands, attributes, node.outputs)
        return self._computed(node, node.operator, operands, attributes, scope)

    def _computed(
        self,
        node: OnnxNode,
        entry: Operator,
        operands: list[object],
        attributes: dict[str, object],
        scope: Scope,
    ) -> Sequence[object]:
        if not entry.is_variadic and len(operands) > len(entry.operands):
            raise UnsupportedOnnx(
                f"{node.label} has {len(operands)} operands, expected at most"
                f" {len(entry.operands)}."
            )
        if entry.takes_context:
            attributes["context"] = self._context(node, scope)
        place = nullcontext()
        if self.device is not None:
            known = self._known_operands(node, operands, scope) if entry.folds else None
            if known is not None:
                operands, place = known, outside_the_recording()
            else:
                operands = self._live_operands(node, entry, operands, scope)
        with place:
            result = entry.compute(*map(widened, operands), **_arguments(attributes))
        return result if isinstance(result, tuple) else (result,)

    def _context(self, node: OnnxNode, scope: Scope) -> NodeContext:
        declared = scope.graph.types if scope.graph else {}
        return NodeContext(
            node.version,
            node.outputs,
            tuple(scope.type_of(name) for name in node.inputs),
            tuple(declared.get(name, 0) for name in node.outputs),
            self.device,
            lambda graph, operands: self.body(graph, operands, scope),
            self.bring_in,
            lambda values, wanted: self._again(scope, values, wanted),
        )

    def _again(
        self, scope: Scope, values: dict[str, object], wanted: list[str]
    ) -> dict[str, object]:
        graph = scope.graph
        assert graph is not None, "functions have no names to ask for"
        inner = Scope(graph, None, {**scope.values, **values}, scope.constants)
        for node in needed_for(graph.nodes, wanted, values):
            self.node(node, inner)
        return {name: inner.value(name) for name in wanted}

    def _known_operands(
        self, node: OnnxNode, operands: list[object], scope: Scope
    ) -> list[object] | None:
        """Operands with values, if all have them; weights, which training changes, have none."""
        if node.graphs:
            return None
        known = []
        for name, value in zip(node.inputs, operands, strict=True):
            constant = _known_if_constant(name, value, scope)
            if is_live(constant):
                return None
            known.append(constant)
        return known

    def _live_operands(
        self, node: OnnxNode, entry: Operator, operands: list[object], scope: Scope
    ) -> list[object]:
        static = {entry.operands.index(name) for name in entry.static}
        result = []
        for index, (name, value) in enumerate(zip(node.inputs, operands, strict=True)):
            if index not in static and node.graphs:  # it may decide by what is known
                result.append(_known_if_constant(name, value, scope))
                continue
            if index not in static:
                result.append(self.bring_in(value))
                continue
            if is_live(value):
                value = scope.constant(name)
                if value is None:
                    raise UnsupportedOnnx(
                        f"The operand {entry.operands[index]!r} of {node.label} depends on the"
                        " model's inputs: shapes are fixed when a model is compiled.",
                        hint="make it a constant of the model; on the host, run it uncompiled",
                    )
            result.append(value)
        return result

    def bring_in(self, value: object) -> object:
        if isinstance(value, list):
            return [self.bring_in(item) for item in value]
        if self.device is None or not isinstance(value, Tensor) or is_live(value):
            return value
        return value.to(self.device)


def _known_if_constant(name: str, value: object, scope: Scope) -> object:
    """A live value as its constant, if it has one that the program cannot change.

    Floating-point initialisers are weights: training changes them.
    """
    if not name or not is_live(value):
        return value
    constant = scope.constant(name)
    return value if constant is None or constant.is_floating_point() else constant


@contextmanager
def _named(node: OnnxNode) -> Iterator[None]:
    """Operations that are recorded bear the name of their node."""
    recording = active()
    if recording is None or not node.name:
        yield
        return
    recording.push_name(node.name.strip("/"))
    try:
        yield
    finally:
        recording.pop_name()


def _attributes(node: OnnxNode, scope: Scope) -> dict[str, object]:
    """Attributes by name: those of the function's call filled in, annotations left out."""
    attributes = dict(node.attributes)
    for name, reference in node.references.items():
        while scope.outer is not None and reference not in scope.attributes:
            scope = scope.outer
        if reference in scope.attributes:
            attributes[name] = scope.attributes[reference]
    entry = node.operator
    if entry is None or entry.takes_any_attribute:
        return attributes
    strange = attributes.keys() - entry.attributes
    rejected = strange & schema_attributes(node) - {"consumed_inputs"}
    if rejected:
        raise UnsupportedOnnx(
            f"The attribute {min(rejected)!r} of {node.label}, version {node.version}, is not"
            " supported."
        )
    return {name: value for name, value in attributes.items() if name not in strange}


def _arguments(attributes: dict[str, object]) -> dict[str, object]:
    return {f"{name}_" if iskeyword(name) else name: v for name, v in attributes.items()}


def _as_declared(value: object, scope: Scope, name: str) -> object:
    number = scope.graph.types.get(name, 0) if scope.graph else 0
    if not number or not isinstance(value, Tensor):
        return value
    wanted = element_type(number).tensor_type
    if is_live(value) and wanted in UNSIGNED:
        return widened(value)
    return value if value.dtype == wanted else value.to(wanted)


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
