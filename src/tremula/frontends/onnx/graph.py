"""A model as it is run: graphs of nodes whose attributes are Python values."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    defs,
)

from tremula.base.errors import suggest
from tremula.frontends.onnx.custom_operators import custom_operator
from tremula.frontends.onnx.element_types import MAX_ELEMENTS, type_name
from tremula.frontends.onnx.errors import OnnxError, UnsupportedOnnx
from tremula.frontends.onnx.initialisers import Reader
from tremula.frontends.onnx.table import Operator, all_operators, find_operator

MAX_DEPTH = 16  # of graphs within graphs
_OWN = "ai.onnx"  # another name of the domain ""
Versions = Mapping[str, int]  # of operator sets, by domain


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


Attributes = dict[str, Any]  # of a node: numbers, text, tensors, graphs, and lists of them
NamedValues = Mapping[str, Any]  # tensors, arrays of text, lists of these, None
_PLAIN: dict[int, Callable[[AttributeProto], Any]] = {
    AttributeProto.FLOAT: lambda proto: proto.f,
    AttributeProto.INT: lambda proto: proto.i,
    AttributeProto.STRING: lambda proto: _text(proto.s),
    AttributeProto.FLOATS: lambda proto: list(proto.floats),
    AttributeProto.INTS: lambda proto: list(proto.ints),
    AttributeProto.STRINGS: lambda proto: [_text(s) for s in proto.strings],
    AttributeProto.TYPE_PROTO: lambda proto: proto.tp,
}


@dataclass(frozen=True)
class ValueInfo:
    """What a graph declares of an input or output."""

    name: str
    type: int  # ONNX's number of the element type
    shape: tuple[int | str | None, ...] | None  # a name for a size that is not fixed
    kind: str = "tensor"  # or sequence, optional, map

    @property
    def dtype(self) -> str:
        return type_name(self.type)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, if all of it is known."""
        if self.shape is None or not all(isinstance(size, int) for size in self.shape):
            return None
        return tuple(int(size) for size in self.shape)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ", ".join(str(s or "?") for s in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A call of an operator, or of a function."""

    domain: str
    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes
    references: dict[str, str]  # in a function: attributes that are attributes of its call
    version: int
    operator: Operator | None
    function: "OnnxFunction | None" = None
    proto: NodeProto | None = None

    @property
    def label(self) -> str:
        """What errors call it."""
        own = self.name or (self.outputs[0] if self.outputs else "")
        return f"{self.op_type} {own!r}"

    @cached_property
    def graphs(self) -> list["OnnxGraph"]:
        return [value for value in self.attributes.values() if isinstance(value, OnnxGraph)]

    @cached_property
    def reads(self) -> frozenset[str]:
        """Every name it needs: its operands, and what graphs in it take from around."""
        inner = (name for graph in self.graphs for name in graph.reads)
        return frozenset((*filter(None, self.inputs), *inner))


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[OnnxNode, ...]  # each after those it needs
    initialisers: dict[str, Any]
    types: dict[str, int] = field(default_factory=dict)  # element types of tensors, by name

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names that it takes from the graph around it."""
        made = {name for node in self.nodes for name in node.outputs}
        own = made | {value.name for value in self.inputs} | set(self.initialisers)
        wanted = {name for node in self.nodes for name in node.reads}
        return frozenset((wanted | {value.name for value in self.outputs}) - own)


def needed_for(
    nodes: Sequence[OnnxNode], wanted: Iterable[str], available: Iterable[str] = ()
) -> list[OnnxNode]:
    """The nodes that values depend on, in order; `given` values need none."""
    names, known, result = set(wanted), frozenset(available), []
    for node in reversed(nodes):
        if not (names - known).isdisjoint(node.outputs):
            result.append(node)
            names |= node.reads
    return result[::-1]


@dataclass(frozen=True, eq=False)
class OnnxFunction:
    """A function that a model or an operator set defines."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    attributes: Attributes  # with their defaults; None has no default


class Parser:
    """Turns protocol buffers into graphs."""

    def __init__(self, functions: Iterable[FunctionProto], reader: Reader):
        self.reader = reader
        self.missing: dict[str, str] = {}  # operators that have no entry: a node of each
        self._protos = {(f.domain, f.name): f for f in functions}
        self._functions: dict[tuple[str, str], OnnxFunction] = {}
        self._open: list[str] = []

    def graph(self, proto: GraphProto, versions: Versions, depth: int = 0) -> OnnxGraph:
        if depth > MAX_DEPTH:
            raise OnnxError(f"Graphs are nested more than {MAX_DEPTH} deep.")
        initialisers = {t.name: self.reader.tensor(t, t.name) for t in proto.initializer}
        for sparse in proto.sparse_initializer:
            initialisers[sparse.values.name] = self.reader.sparse(sparse)
        declared = [*proto.value_info, *proto.input, *proto.output]
        infos = {value.name: value_info(value) for value in declared}
        types = {t.name: t.data_type for t in proto.initializer}
        types |= {name: info.type for name, info in infos.items() if info.type}
        nodes = [self.node(node, versions, depth) for node in proto.node]
        inputs = [value.name for value in proto.input]
        return OnnxGraph(
            proto.name,
            tuple(infos[value.name] for value in proto.input),
            tuple(infos[value.name] for value in proto.output),
            sorted_nodes(nodes, {*inputs, *initialisers}, proto.name),
            initialisers,
            types,
        )

    def node(self, proto: NodeProto, versions: Versions, depth: int = 0) -> OnnxNode:
        for text in (proto.op_type, proto.domain, proto.name, *proto.input, *proto.output):
            if not isinstance(text, str):  # protocol buffers give bytes for what is not text
                raise OnnxError(f"A node has a name that is not text: {bytes(text)[:40]!r}.")
        domain = "" if proto.domain == _OWN else proto.domain
        version = versions.get(domain, 1 if domain else 0)
        function = self._function(domain, proto.op_type)
        entry = None if function else find_operator(domain, proto.op_type, version)
        if entry is None and function is None and domain:
            entry = custom_operator(domain, proto.op_type, version)
        attributes = {
            a.name: self.attribute(a, versions, depth)
            for a in proto.attribute
            if not a.ref_attr_name
        }
        node = OnnxNode(
            domain,
            proto.op_type,
            proto.name,
            tuple(proto.input),
            tuple(proto.output),
            attributes,
            {a.name: a.ref_attr_name for a in proto.attribute if a.ref_attr_name},
            version,
            entry,
            function,
            proto,
        )
        if entry is None and function is None and not has_body(domain, proto.op_type, version):
            self.missing.setdefault(f"{domain or 'ai.onnx'} {proto.op_type} {version}", node.label)
        return node

    def attribute(self, proto: AttributeProto, versions: Versions, depth: int) -> Any:  # noqa: ANN401
        kind = proto.type
        if kind in _PLAIN:
            return _PLAIN[kind](proto)
        if kind == AttributeProto.GRAPH:
            return self.graph(proto.g, versions, depth + 1)
        if kind == AttributeProto.TENSOR:
            return self.reader.tensor(proto.t, proto.name)
        if kind == AttributeProto.TENSORS:
            return [self.reader.tensor(t, proto.name) for t in proto.tensors]
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.reader.sparse(proto.sparse_tensor)
        raise UnsupportedOnnx(f"The attribute {proto.name!r} has a type that is not supported.")

    def _function(self, domain: str, name: str) -> OnnxFunction | None:
        """A function of the model; each is parsed once."""
        key = (domain, name)
        if key not in self._protos:
            return None
        if key not in self._functions:
            if name in self._open:
                path = " → ".join((*self._open, name))
                raise OnnxError(f"A function of the model calls itself: {path}.")
            self._open.append(name)
            self._functions[key] = self.function(self._protos[key])
            self._open.pop()
        return self._functions[key]

    def function(self, proto: FunctionProto) -> OnnxFunction:
        versions = versions_of(proto.opset_import)
        nodes = [self.node(node, versions) for node in proto.node]
        attributes: Attributes = dict.fromkeys(proto.attribute)
        for a in proto.attribute_proto:
            attributes[a.name] = self.attribute(a, versions, 0)
        inputs = tuple(proto.input)
        ordered = sorted_nodes(nodes, set(inputs), proto.name)
        return OnnxFunction(proto.name, inputs, tuple(proto.output), ordered, attributes)

    def reject_missing(self) -> None:
        if not self.missing:
            return
        known = {f"{entry.domain or 'ai.onnx'} {entry.name}" for entry in all_operators()}
        lines = [f"{name} (node {where})" for name, where in sorted(self.missing.items())]
        first = min(self.missing).rpartition(" ")[0]
        hint = "docs/onnx.md lists operators and versions; docs/custom_ops.md registers others"
        if first not in known:
            hint = f"{suggest(first, known)} {hint}"
        raise UnsupportedOnnx(
            f"The model uses operators without an entry: {', '.join(lines)}.", hint=hint
        )


def has_body(domain: str, name: str, version: int) -> bool:
    """Whether the operator set itself defines the operator by others."""
    try:
        schema: Any = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def reject_unknown_names(graph: OnnxGraph) -> None:
    """Everything that the nodes and outputs of a main graph read must be there."""
    for name in sorted(graph.reads):
        readers = [node.label for node in graph.nodes if name in node.reads]
        where = f"node {readers[0]}" if readers else "list of outputs"
        raise OnnxError(
            f"The model's {where} reads {name!r}, which is not an input, an initialiser or an"
            " output of a node.",
            hint="was the file saved without its weights, or cut out of a larger model?",
        )


def reject_huge(values: Iterable[ValueInfo]) -> None:
    """Tensors that no computer holds are a mistake, or malice."""
    for value in values:
        sizes = [size for size in value.shape or () if isinstance(size, int)]
        if math.prod(sizes) > MAX_ELEMENTS:
            raise OnnxError(f"The tensor {value} has more than {MAX_ELEMENTS:,} elements.")


def versions_of(imports: Iterable[Any]) -> dict[str, int]:
    return {"" if i.domain == _OWN else i.domain: i.version for i in imports}


def value_info(proto: ValueInfoProto) -> ValueInfo:
    kind, tensor = _tensor_type(proto.type)
    if tensor is None:
        return ValueInfo(proto.name, TensorProto.UNDEFINED, None, kind)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(_size(dim) for dim in tensor.shape.dim)
    return ValueInfo(proto.name, tensor.elem_type, shape, kind)


def _size(dim: Any) -> int | str | None:  # noqa: ANN401 - a Dimension of protobuf
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def _tensor_type(proto: TypeProto) -> tuple[str, Any]:
    """Whether a value is a tensor, a sequence, …; and the type of the tensors in it."""
    which = proto.WhichOneof("value") or "tensor_type"
    kind = which.removesuffix("_type")
    if kind in ("sequence", "optional"):
        return kind, _tensor_type(getattr(proto, which).elem_type)[1]
    is_tensor = kind in ("tensor", "sparse_tensor")
    return kind, getattr(proto, which) if is_tensor else None


def sorted_nodes(nodes: list[OnnxNode], available: set[str], graph: str) -> tuple[OnnxNode, ...]:
    """Nodes in an order in which each comes after those it needs; ONNX asks for one."""
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in available:
                raise OnnxError(
                    f"Two values of graph {graph!r} are called {name!r}; {node.label} makes one."
                )
            makers[name] = index
    waits = [{makers[name] for name in node.reads if name in makers} for node in nodes]
    if all(max(before, default=-1) < index for index, before in enumerate(waits)):
        return tuple(nodes)
    return tuple(nodes[i] for i in _topological(waits, nodes, graph))


def _topological(waits: list[set[int]], nodes: list[OnnxNode], graph: str) -> list[int]:
    ready = [i for i, before in enumerate(waits) if not before]
    users: dict[int, list[int]] = {}
    for index, before in enumerate(waits):
        for other in before:
            users.setdefault(other, []).append(index)
    left, order = [len(before) for before in waits], []
    while ready:
        index = ready.pop()
        order.append(index)
        for user in users.get(index, ()):
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    if len(order) < len(nodes):
        stuck = [nodes[i].label for i in range(len(nodes)) if left[i]]
        raise OnnxError(
            f"The nodes of graph {graph!r} depend on each other in a circle:"
            f" {', '.join(stuck[:4])}{', …' if len(stuck) > 4 else ''}."
        )
    return order
