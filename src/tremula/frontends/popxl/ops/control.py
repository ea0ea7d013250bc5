"""Calls, loops and branches: operations that run other graphs."""

from collections.abc import Mapping, Sequence

from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popxl.core.call_site import CallSiteInfo, ConditionalSiteInfo
from tremula.frontends.popxl.core.context import get_current_graph
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import AttributeDict, OperationRow, apply, public
from tremula.frontends.popxl.core.table import record
from tremula.frontends.popxl.core.tensor import Tensor, TensorLike

PAGE_SECTION = (11, "Calls, loops, branches")

CALL = OperationRow("call", "Call", None, is_pure=False)
LOOP = OperationRow("repeat", "Loop", None, is_pure=False)
IF = OperationRow("conditional", "If", None, is_pure=False)
GraphInput = TensorLike | Sequence[TensorLike]
InputsDict = Mapping[Tensor, Tensor] | None


@public
def call(graph: Graph, *inputs: GraphInput, inputs_dict: InputsDict = None) -> tuple[Tensor, ...]:
    """Run a graph with these inputs; its outputs."""
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs


@public
def call_with_info(
    graph: Graph,
    *inputs: GraphInput,
    inputs_dict: InputsDict = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """Run a graph; returns what binds the call to the graph."""
    bound = bind_inputs(graph, inputs, inputs_dict, check_inputs)
    return CallSiteInfo(_record_site(CALL, graph, bound, {}))


@public
def repeat(
    graph: Graph, repeat_count: int, *inputs: GraphInput, inputs_dict: InputsDict = None
) -> tuple[Tensor, ...]:
    """Run a graph `repeat_count` times: its outputs are the first inputs of the next round."""
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict).outputs


@public
def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: GraphInput,
    inputs_dict: InputsDict = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """Repeat a graph; returns what binds the loop to a graph that calls the one repeated."""
    if repeat_count < 0:
        raise ValueError(f"Repeat count must be >= 0, got {repeat_count}")
    if len(graph.inputs) < len(graph.outputs):
        raise ValueError(
            f"To repeat the subgraph {graph.id}, it must have at least as many inputs as outputs:"
            f" outputs are the first inputs of the next round. It has {len(graph.inputs)} inputs"
            f" and {len(graph.outputs)} outputs"
        )
    bound = bind_inputs(graph, inputs, inputs_dict, check_inputs)
    for first, made in zip(graph.inputs, graph.outputs, strict=False):
        if (first.shape, first.dtype) != (made.shape, made.dtype):
            raise ValueError(
                f"To repeat the subgraph {graph.id}, output {made!r} must be like input {first!r},"
                " which it is in the next round"
            )
    wrapper = _wrapper(graph)
    return CallSiteInfo(_record_site(LOOP, wrapper, bound, {"repeat_count": int(repeat_count)}))


def _wrapper(graph: Graph) -> Graph:
    """A graph that only calls another: the body of a loop."""
    ir = graph.ir
    wrapper = ir.create_empty_graph(f"{graph.id}_loop_wrapper")
    with wrapper:
        inputs = []
        for t in graph.inputs:
            inner = wrapper.new_tensor(t.name, t.shape, t.dtype, t.meta_shape)
            wrapper.mark_input(inner, t in graph.by_ref_inputs)
            inputs.append(inner)
        for t in call(graph, *inputs):
            wrapper.mark_as_output(t)
    return wrapper


def bind_inputs(
    graph: Graph, inputs: Sequence[GraphInput], inputs_dict: InputsDict, check_inputs: bool = True
) -> list[Tensor]:
    """A tensor of the calling graph for each input of the graph called."""
    flat: list[TensorLike] = []
    for value in inputs:
        flat += value if isinstance(value, list | tuple) else [value]
    if len(flat) > len(graph.inputs):
        raise ValueError(
            f"Too many inputs have been provided to graph {graph.id}: {len(flat)}, but it has"
            f" {len(graph.inputs)}.\n{_table(graph, flat, inputs_dict)}"
        )
    bound = dict(zip(graph.inputs, flat, strict=False))
    for inner, outer in (inputs_dict or {}).items():
        if inner not in graph.inputs:
            if not check_inputs:
                continue
            raise ValueError(
                f"{inner!r} is not in the called graph, or is not an input of it: {graph.id} has"
                f" {', '.join(t.id for t in graph.inputs) or 'no inputs'}"
            )
        if inner in bound:
            raise ValueError(
                f"Graph input tensor is specified twice: {inner.id}.\n"
                f"{_table(graph, flat, inputs_dict)}"
            )
        bound[inner] = outer
    missing = [t for t in graph.inputs if t not in bound]
    if missing:
        raise ValueError(
            f"Not enough inputs have been provided to graph {graph.id}: missing"
            f" {', '.join(t.id for t in missing)}.\n{_table(graph, flat, inputs_dict)}"
        )
    return [_coerced(graph, t, bound[t]) for t in graph.inputs]


def _coerced(graph: Graph, inner: Tensor, operand: TensorLike) -> Tensor:
    value = operand if isinstance(operand, Tensor) else apply("constant", operand, inner.dtype)
    if value.graph is not get_current_graph():
        raise ValueError(
            f"Input {inner.id} of graph {graph.id} is given {value.id}, which is not a tensor of"
            f" the current graph, {get_current_graph().id or 'main'}"
        )
    if (value.shape, value.dtype) != (inner.shape, inner.dtype):
        raise popart_exception(
            f"Input {inner.id} of graph {graph.id} is {inner.dtype.name} {inner.shape}, but"
            f" {value.id} is {value.dtype.name} {value.shape}"
        )
    return value


def _table(graph: Graph, flat: Sequence[object], inputs_dict: InputsDict) -> str:
    """Inputs of a graph and what is given for each, a line for each."""
    rows = []
    for i in range(max(len(graph.inputs), len(flat))):
        inner = graph.inputs[i] if i < len(graph.inputs) else None
        value = flat[i] if i < len(flat) else (inputs_dict or {}).get(inner)  # type: ignore[arg-type]
        rows.append(f"  {i}: {'-' if inner is None else inner.id:<32} {value!r}")
    return "\n".join(["  input of the graph                given", *rows])


def _record_site(
    row: OperationRow, graph: Graph, bound: list[Tensor], attributes: AttributeDict
) -> Op:
    specs = [(t.shape, t.dtype) for t in graph.outputs]
    names = [t.name for t in graph.outputs]
    layout = tuple((str(i), i) for i in range(len(bound)))
    attributes = {**attributes, "modified": set()}
    outputs = record(row, bound, layout, attributes, specs, (graph,), names)
    op = _recorded(outputs)
    for t, inner in zip(outputs, graph.outputs, strict=True):
        t._meta_shape = inner.meta_shape
    return op


def _recorded(outputs: list[Tensor]) -> Op:
    """The operation that was just added to the current graph, from its outputs."""
    op = outputs[0].producer if outputs else get_current_graph().ops[-1]
    assert op is not None, "an operation that was just recorded makes its outputs"
    return op


# -- branches --------------------------------------------------------------------------------------


@public
def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[GraphInput] | None = None,
    else_inputs: Sequence[GraphInput] | None = None,
    then_inputs_dict: InputsDict = None,
    else_inputs_dict: InputsDict = None,
) -> tuple[Tensor, ...]:
    """Run one of two graphs, as a boolean says."""
    info = conditional_with_info(
        cond, then_branch, else_branch, then_inputs, else_inputs, then_inputs_dict, else_inputs_dict
    )
    return info.outputs


@public
def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[GraphInput] | None = None,
    else_inputs: Sequence[GraphInput] | None = None,
    then_inputs_dict: InputsDict = None,
    else_inputs_dict: InputsDict = None,
    check_inputs: bool = True,
) -> ConditionalSiteInfo:
    """Run one of two graphs; returns what binds the branches."""
    if cond.nelms != 1:
        raise ValueError(f"The condition of a branch is one boolean, got {cond!r}")
    pairs = list(zip(then_branch.outputs, else_branch.outputs, strict=False))
    n_then, n_else = len(then_branch.outputs), len(else_branch.outputs)
    if n_then != n_else:
        raise ValueError(
            f"The branches must have the same number of outputs: {then_branch.id} has {n_then},"
            f" {else_branch.id} has {n_else}"
        )
    for a, b in pairs:
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(f"Outputs of the branches differ: {a!r} and {b!r}")
    if then_branch.by_ref_inputs or else_branch.by_ref_inputs:
        raise NotImplementedError(
            "Branches take their inputs by value: return new values instead of writing inputs"
        )
    first = bind_inputs(then_branch, then_inputs or (), then_inputs_dict, check_inputs)
    second = bind_inputs(else_branch, else_inputs or (), else_inputs_dict, check_inputs)
    n = len(first)
    layout = (("cond", 0), ("then", list(range(1, n + 1))),
              ("else", list(range(n + 1, n + 1 + len(second)))))  # fmt: skip
    specs = [(t.shape, t.dtype) for t in then_branch.outputs]
    outputs = record(
        IF, [cond, *first, *second], layout, {"modified": set()}, specs,
        (then_branch, else_branch), [t.name for t in then_branch.outputs],
    )  # fmt: skip
    op = _recorded(outputs)
    return ConditionalSiteInfo(op)
