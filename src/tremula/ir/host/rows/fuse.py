"""Pass of a GPU: gathers, what is computed per row, and sums into segments become few kernels."""

import operator

import torch
from torch import fx

from tremula.ir.host.rows import facts
from tremula.ir.host.rows.gluon import gluon_source
from tremula.ir.host.rows.kernels import RowKernel, register
from tremula.ir.host.rows.regions import EXACT, ROUNDED, Limits, Region, find_regions
from tremula.ir.host.rows.segments import Orders, segment_source
from tremula.ir.host.rows.source import kernel_source
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
        limits = ROUNDED if precision == "tf32" else EXACT
    regions = find_regions(step, limits)
    orders = Orders.of(step, regions, limits.many_summed)
    for region in regions:
        _replace(step, region, precision, orders.inputs(region))
    if regions:
        _sort(step.graph)
    return drop_dead(step)


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
            gluon_source(region, precision, source.inputs),
            segment_source(region, precision, source.inputs) if order else None,
        )
    )
    last = max(region.results, key=list(step.graph.nodes).index)
    with step.graph.inserting_after(last):
        call = step.graph.call_function(
            torch.ops.tremula.row_kernel.default, (digest, list(source.inputs))
        )
    call.meta = {**last.meta, "val": values}
    for place, node in enumerate(region.results):
        with step.graph.inserting_after(call):
            item = step.graph.call_function(operator.getitem, (call, place))
        item.meta.update(node.meta)
        node.replace_all_uses_with(item)


def _as_graph(region: Region, inputs: tuple[fx.Node, ...]) -> fx.GraphModule:
    """The same results by ATen."""
    graph = fx.Graph()
    copied = {node: graph.placeholder(f"x{place}") for place, node in enumerate(inputs)}

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
