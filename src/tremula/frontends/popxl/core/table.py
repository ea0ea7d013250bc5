"""`@operation`: a function over PyTorch becomes a row of the table and a function of PopXL.

    @operation("Abs")
    def abs(t: Operand): return torch.abs(t)

Parameters annotated as operands take tensors; all others are attributes of the operation. Types and
shapes of results come from running the function on tensors without memory.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import torch

from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popxl.core.context import (
    current_ipu,
    current_stage,
    current_tile_set,
    get_current_graph,
)
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.order import order
from tremula.frontends.popxl.core.places import check_tensor_ipu_and_tile_set
from tremula.frontends.popxl.core.registry import (
    FUNCTIONS,
    ROWS,
    AttributeDict,
    Attributes,
    OperationRow,
    apply,
)
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import dtype, get_all_dtypes, int32

if TYPE_CHECKING:
    from tremula.frontends.popxl.core.graph import Graph

Operand = torch.Tensor  # a tensor, or what becomes a constant of the first one's type
Indices = Annotated[torch.Tensor, "integers"]  # an operand of integers
OptionalOperand = torch.Tensor | None
Operands = list[torch.Tensor]
Scalar = torch.Tensor | float | None  # a tensor, or a number that stays an attribute
Spec = tuple[tuple[int, ...], dtype]

_KINDS = {Operand: "one", Indices: "indices", OptionalOperand: "optional", Operands: "many",
          Scalar: "scalar"}  # fmt: skip
_OF_TORCH = {
    type_.carrier: type_
    for type_ in get_all_dtypes()
    if type_.name == str(type_.carrier).removeprefix("torch.")
}
_inferred: dict[tuple, list[Spec]] = {}


def operation(
    kind: str,
    name: str = "",
    around: Callable[[Callable], Callable] | None = None,
    **properties: Any,
) -> Callable[[Callable], Callable]:
    """Make a row of the table of a function over PyTorch; returns the function of PopXL.

    `around` makes the public function of it, if that does more; `properties` are of `Operation`.
    """

    def make(compute: Callable) -> Callable:
        row = OperationRow(name or compute.__name__, kind, compute, **properties)
        ROWS[row.name] = row
        function = _function_of(row, compute)
        function = function if around is None else around(function)
        FUNCTIONS.enter(row.name, function)
        return function

    return make


def _function_of(row: OperationRow, compute: Callable) -> Callable:
    """The function that adds the operation to the graph that is open."""
    signature = row.signature
    kinds = {
        name: "many" if p.kind is p.VAR_POSITIONAL else result
        for name, p in signature.parameters.items()
        if (result := _KINDS.get(p.annotation)) is not None
    }

    @functools.wraps(compute)
    def make(*args: object, **kwargs: object) -> Tensor | Sequence[Tensor] | None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"popxl.ops.{row.name}: {error}") from None
        bound.apply_defaults()
        inputs, layout, attributes = _operands(row, kinds, bound.arguments)
        outputs = record(row, inputs, layout, attributes)
        outputs = outputs[: len(outputs) - row.n_hidden]
        if row.returns_list:
            return list(outputs)
        if len(outputs) == 1:
            return outputs[0]
        return tuple(outputs) if outputs else None

    make.__signature__ = signature  # type: ignore[attr-defined]
    make.row = row  # type: ignore[attr-defined]
    return make


def _operands(
    row: OperationRow, kinds: Mapping[str, str], arguments: Attributes
) -> tuple[list[Tensor], tuple, AttributeDict]:
    """Tensors among the arguments, where each goes, and all others."""
    inputs: list[Tensor] = []
    layout: list[tuple[str, int | list[int]]] = []
    attributes: AttributeDict = {}
    type_ = _first_type(kinds, arguments)

    def put(value: object, kind: str) -> int:
        inputs.append(_as_tensor(row, value, int32 if kind == "indices" else type_))
        return len(inputs) - 1

    for name, value in arguments.items():
        kind = kinds.get(name)
        if kind is None or (value is None and kind in {"optional", "scalar"}):  # left out
            attributes[name] = value
        elif kind == "many":
            layout.append((name, [put(item, kind) for item in value or ()]))
        elif kind == "scalar" and not isinstance(value, Tensor):
            attributes[name] = float(value)  # type: ignore[arg-type]
        else:
            layout.append((name, put(value, kind)))
    return inputs, tuple(layout), attributes


def _first_type(kinds: Mapping[str, str], arguments: Attributes) -> dtype | None:
    for name in kinds:
        value = arguments[name]
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Tensor):
                return item.dtype
    return None


def _as_tensor(row: OperationRow, value: object, type_: dtype | None) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if value is None or isinstance(value, str):
        raise TypeError(f"popxl.ops.{row.name} takes tensors, got {value!r}")
    return apply("constant", value, type_)


def _check_not_recursive(graph: "Graph", called: "Graph") -> None:
    reached, waiting = {called}, [called]
    while waiting:
        if (current := waiting.pop()) == graph:
            raise ValueError(
                f"graph {called.name!r} cannot be called in {graph.name!r}, which it is part of or "
                "calls: a graph that calls itself would never end. Use ops.repeat for loops"
            )
        waiting += [other for other in current.called_graphs if other not in reached]
        reached.update(waiting)


def record(
    row: OperationRow,
    inputs: list[Tensor],
    layout: tuple,
    attributes: AttributeDict,
    specs: Sequence[Spec] | None = None,
    graphs: "tuple[Graph, ...]" = (),
    names: Sequence[str] = (),
) -> list[Tensor]:
    """Add an operation to the graph that is open; its results."""
    graph = get_current_graph()
    check_in_graph(graph, row.name or row.kind, inputs)
    if row.is_pure and len(inputs) > 1:
        _check_places(row, layout, inputs)
    for called in graphs:
        _check_not_recursive(graph, called)
    op = Op(graph, row, inputs, layout, attributes, graphs)
    ipu = current_ipu()
    op.ipu, op.has_ipu, op.tile_set = ipu or 0, ipu is not None, current_tile_set()
    op.stage = current_stage()
    if row.same:
        _check_types(op)
    if specs is None:
        specs = infer(op)
    for i, (shape, type_) in enumerate(specs):
        name = names[i] if i < len(names) else _output_name(row, attributes, inputs)
        t = graph.new_tensor(name, shape, type_, _meta_shape(op, shape))
        t.producer = op
        op.outputs.append(t)
    order(op)
    graph.add_op(op)
    return op.outputs


def _check_places(row: OperationRow, layout: tuple, inputs: list[Tensor]) -> None:
    """Operands that were computed are on one chip and on one kind of tiles."""
    if row.kind in {"IpuCopy", "AllReduce"} or all(t.producer is None for t in inputs):
        return
    named: dict[str, Tensor] = {}
    for name, index in layout:
        for n, i in enumerate(index if isinstance(index, list) else [index]):
            if inputs[i].producer is not None:
                named[f"{name}_{n}" if isinstance(index, list) else name] = inputs[i]
    check_tensor_ipu_and_tile_set(**named)


def _output_name(row: OperationRow, attributes: Attributes, inputs: list[Tensor]) -> str:
    """A name that the program chose; of a cast, the operand's with the type; else by operation."""
    if "data_type" in attributes and inputs:
        return f"{inputs[0].name}_{dtype.as_dtype(attributes['data_type']).name}"
    return attributes.get("output_name") or f"{row.name or row.kind}_out"


def _check_types(op: Op) -> None:
    """Operands that are computed together have one type."""
    result: list[tuple[str, Tensor]] = []
    for name in op.row.same:
        operand = op.operand(name)
        several = operand if isinstance(operand, list) else [operand]
        result += [(name, t) for t in several if t is not None]
    if len({t.dtype for _, t in result}) > 1:
        got = ", ".join(f"{name}: {t.dtype.name}" for name, t in result)
        raise popart_exception(
            f"popxl.ops.{op.row.name}: operands must have the same dtype, got {got}",
            hint="convert one of them with popxl.ops.cast",
        )


def _meta_shape(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A result that is computed element by element from a shard is a shard of the same tensor."""
    if "meta_shape" in op.attributes:
        return tuple(op.attributes["meta_shape"] or ())
    if not op.row.is_pure or op.row.is_collective:
        return ()
    return next((t.meta_shape for t in op.inputs if t.meta_shape and t.shape == shape), ())


def check_in_graph(graph: "Graph", name: str, tensors: Sequence[Tensor]) -> None:
    for t in tensors:
        if t.graph is not graph:
            raise ValueError(
                f"popxl.ops.{name}: tensor {t.id} is not in the current graph,"
                f" {graph.id or 'main'}. Pass it to the graph as an input"
            )


def infer(op: Op) -> list[Spec]:
    """Shapes and types of an operation's results."""
    try:
        key = (
            op.row.name, str(op.layout), tuple((t.shape, t.dtype) for t in op.inputs),
            tuple(_frozen(v) for v in op.attributes.values()),
        )  # fmt: skip
        result = _inferred.get(key)
    except TypeError:  # an attribute without a hash
        return _infer(op)
    if result is None:
        result = _inferred[key] = _infer(op)
    return result


def _frozen(value: object) -> tuple:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else (type(value), value)


def _infer(op: Op) -> list[Spec]:
    row = op.row
    values = [torch.empty(t.shape, dtype=t.dtype.carrier, device="meta") for t in op.inputs]
    assert row.compute is not None, f"{row.kind} says its types itself"
    try:
        results = op.compute(values)
    except (popart_exception, ValueError, TypeError):  # an argument that is not valid
        raise
    except (RuntimeError, IndexError) as error:
        operands = ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in op.inputs)
        text = str(error).splitlines()[0]
        raise popart_exception(f"popxl.ops.{row.name}({operands}): {text}") from error
    if results is None:
        return []
    flat = list(results) if isinstance(results, list | tuple) else [results]
    shapes = [tuple(int(n) for n in value.shape) for value in flat]
    if row.types is not None:
        said = row.types([t.dtype for t in op.inputs], op.attributes)
        types = [said] * len(flat) if isinstance(said, dtype) else list(said)
    else:
        types = [_type_of(value, op.inputs) for value in flat]
    return list(zip(shapes, types, strict=True))


def _type_of(value: torch.Tensor, inputs: Sequence[Tensor]) -> dtype:
    """The type of an input that is computed alike, else the plain one."""
    for t in inputs:
        if t.dtype.carrier == value.dtype:
            return t.dtype
    return _OF_TORCH[value.dtype]
