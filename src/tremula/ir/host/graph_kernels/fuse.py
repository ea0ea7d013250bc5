"""Pass of a GPU: gathers, what is computed per row, and sums into segments become few kernels."""

import operator

import torch
from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.host.graph_kernels.gluon import gluon_source
from tremula.ir.host.graph_kernels.gluon_standing import standing_source
from tremula.ir.host.graph_kernels.kernels import (
    GLUON,
    SEGMENTS,
    STANDING,
    RowKernel,
    has_units,
    register,
)
from tremula.ir.host.graph_kernels.regions import (
    EXACT,
    ROUNDED,
    STANDING_TILES,
    Limits,
    Region,
    find_regions,
    outer_size,
)
from tremula.ir.host.graph_kernels.segments import Orders, segment_source
from tremula.ir.host.graph_kernels.source import kernel_source
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_LIKE = {
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
}


def fuse_rows(
    step: CapturedStep, device: torch.device, limits: Limits | None = None
) -> CapturedStep:
    """Replace what `find_regions` finds by calls of kernels; limits follow the precision."""
    if not any(facts.segment_of(node) for node in step.graph.nodes):
        return step
    _without_examples(step, device)
    precision = product_precision()
    if limits is None:
        limits = _limits(step, precision, device)
    regions = find_regions(step, limits)
    orders = Orders.of(step, regions, limits.many_summed)
    for region in regions:
        _replace(step, region, precision, orders.inputs(region))
    if regions:
        _sort(step.graph)
    return drop_dead(step)


def _limits(step: CapturedStep, precision: str, device: torch.device) -> Limits:
    """How much a kernel holds: most where all that sum large outer products can do it standing."""
    if precision != "tf32":
        return EXACT
    if not has_units(device):
        return ROUNDED
    large = [r for r in find_regions(step, STANDING_TILES) if outer_size(r) > ROUNDED.edges.outer]
    can_stand = all(
        standing_source(r, precision, kernel_source(r, precision).inputs) is not None for r in large
    )
    return STANDING_TILES if can_stand else ROUNDED


def product_precision() -> str:
    """Triton's word for `torch.set_float32_matmul_precision`: three products make up a full one."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _without_examples(step: CapturedStep, device: torch.device) -> None:
    """Constants that are made like a tensor do not depend on it."""
    for node in list(step.graph.nodes):
        if node.target not in _LIKE:
            continue
        value = facts.tensor_of(node)
        with step.graph.inserting_before(node):
            made = step.graph.call_function(
                aten.full.default,
                (list(value.shape), _LIKE[node.target]),
                {"dtype": value.dtype, "device": device},
            )
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        step.graph.erase_node(node)


def _replace(step: CapturedStep, region: Region, precision: str, order: list[fx.Node]) -> None:
    source = kernel_source(region, precision, order)
    values = [facts.tensor_of(node) for node in region.results]
    digest = register(
        RowKernel(
            source.text,
            region.n_rows,
            tuple((tuple(value.shape), value.dtype) for value in values),
            source.is_summed,
            source.sums_over_rows,
            _as_graph(region, source.inputs),
            _other_forms(region, precision, source.inputs, is_ordered=bool(order)),
        )
    )
    last = max(region.results, key=list(step.graph.nodes).index)
    with step.graph.inserting_after(last):
        call = step.graph.call_function(
            torch.ops.tremula.row_kernel.default, (digest, list(source.inputs))
        )
    call.meta = {**last.meta, "val": values}
    for index, node in enumerate(region.results):
        with step.graph.inserting_after(call):
            item = step.graph.call_function(operator.getitem, (call, index))
        item.meta.update(node.meta)
        node.replace_all_uses_with(item)


def _other_forms(
    region: Region, precision: str, inputs: tuple[fx.Node, ...], is_ordered: bool
) -> dict[str, str]:
    """The texts of a kernel beside that in Triton, as far as there are some."""
    result = {
        GLUON: gluon_source(region, precision, inputs),
        STANDING: standing_source(region, precision, inputs),
        SEGMENTS: segment_source(region, precision, inputs) if is_ordered else None,
    }
    return {form: text for form, text in result.items() if text is not None}


def _as_graph(region: Region, inputs: tuple[fx.Node, ...]) -> fx.GraphModule:
    """The same results by ATen."""
    graph = fx.Graph()
    copied = {node: graph.placeholder(f"x{index}") for index, node in enumerate(inputs)}

    def copy(node: fx.Node) -> fx.Node:
        if node not in copied:
            fx.map_arg((node.args, node.kwargs), copy)
            copied[node] = graph.node_copy(node, copied.__getitem__)
        return copied[node]

    graph.output([copy(node) for node in region.results])
    return fx.GraphModule(torch.nn.Module(), graph)


def _sort(graph: fx.Graph) -> None:
    """Put every node after its operands, else in the order they were in."""
    nodes = [node for node in graph.nodes if node.op != "output"]
    order: dict[fx.Node, None] = {n: None for n in nodes if n.op == "placeholder"}
    waiting = list(reversed(nodes))
    while waiting:
        missing = [x for x in waiting[-1].all_input_nodes if x not in order]
        if missing:
            waiting += missing
        else:
            order[waiting.pop()] = None
    end = graph.output_node()
    for node in order:
        end.prepend(node)
