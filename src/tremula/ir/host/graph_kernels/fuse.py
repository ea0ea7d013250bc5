"""Pass for GPUs: gathers, operations on rows and sums into segments become a few kernels."""

import operator

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.kernels import (
    FEATURE_MAJOR_TILES,
    GLUON,
    SEGMENTS,
    RowKernel,
    compile_candidates,
    has_matrix_units,
    register,
)
from tremula.ir.host.graph_kernels.printers.gluon_features import feature_major_source
from tremula.ir.host.graph_kernels.printers.gluon_rows import gluon_source
from tremula.ir.host.graph_kernels.printers.triton_rows import triton_source
from tremula.ir.host.graph_kernels.printers.triton_segments import segment_source
from tremula.ir.host.graph_kernels.regions import (
    FEATURE_MAJOR,
    FLOAT32,
    TF32,
    FusionLimits,
    Region,
    find_regions,
    outer_size,
)
from tremula.ir.host.graph_kernels.segment_extremes import (
    compare_by_segments,
    segment_extreme_of,
)
from tremula.ir.host.graph_kernels.segment_order import SegmentOrders
from tremula.ir.host.graph_kernels.statements import TileKernel, describe
from tremula.ir.host.graph_kernels.sum_first import sum_before_products
from tremula.ir.host.graph_kernels.tables_first import multiply_tables
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_LIKE = {
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
}


def fuse_graph_kernels(
    step: CapturedStep, device: torch.device, limits: FusionLimits | None = None
) -> CapturedStep:
    """Replace the regions of a step by kernels; limits follow the precision of products."""
    if not any(_reduces_segments(node) for node in step.graph.nodes):
        return step
    make_constants_independent(step, device)
    step = sum_before_products(multiply_tables(step, device), device)
    step = compare_by_segments(step, device)
    precision = product_precision()
    if limits is None:
        limits = _limits(step, precision, device)
    regions = find_regions(step, limits)
    orders = SegmentOrders.of(step, regions, limits.many_summed)
    digests = [_replace(step, r, precision, orders.inputs(r)) for r in regions]
    compile_candidates(digests, device)
    if regions:
        _sort(step.graph)
    return drop_dead(step)


def _reduces_segments(node: fx.Node) -> bool:
    return roles.segment_sum_of(node) is not None or segment_extreme_of(node) is not None


def _limits(step: CapturedStep, precision: str, device: torch.device) -> FusionLimits:
    """The largest where all kernels with large sums of outer products can be feature-major."""
    if precision != "tf32":
        return FLOAT32
    if not has_matrix_units(device):
        return TF32
    regions = find_regions(step, FEATURE_MAJOR)
    large = [describe(r) for r in regions if outer_size(r) > TF32.edges.outer_sums]
    can_all = all(
        feature_major_source(kernel, precision, triton_source(kernel, precision).inputs) is not None
        for kernel in large
    )
    return FEATURE_MAJOR if can_all else TF32


def product_precision() -> str:
    """Triton's name of `torch.get_float32_matmul_precision`; full float32 takes three products."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def make_constants_independent(step: CapturedStep, device: torch.device) -> None:
    """Constants that are made like a tensor (`zeros_like`) become constants of its shape."""
    for node in list(step.graph.nodes):
        if node.target not in _LIKE:
            continue
        value = roles.tensor_of(node)
        with step.graph.inserting_before(node):
            made = step.graph.call_function(
                aten.full.default,
                (list(value.shape), _LIKE[node.target]),
                {"dtype": value.dtype, "device": device},
            )
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        step.graph.erase_node(node)


def _replace(step: CapturedStep, region: Region, precision: str, order: list[fx.Node]) -> str:
    """Put a kernel in place of its region; the kernel's digest."""
    kernel = describe(region)
    source = triton_source(kernel, precision, order)
    values = [roles.tensor_of(node) for node in region.results]
    digest = register(
        RowKernel(
            source.text,
            region.n_rows,
            tuple((tuple(value.shape), value.dtype) for value in values),
            source.is_summed,
            source.sums_over_rows,
            source.n_matrices,
            source.has_outer_sums,
            _as_graph(region, source.inputs),
            _other_forms(kernel, precision, source.inputs, is_ordered=bool(order)),
            tuple(roles.tensor_of(node).dtype for node in source.inputs),
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
    return digest


def _other_forms(
    kernel: TileKernel, precision: str, inputs: tuple[fx.Node, ...], is_ordered: bool
) -> dict[str, str]:
    """The texts of a kernel besides that over tiles in Triton, as far as it has others."""
    result = {
        GLUON: gluon_source(kernel, precision, inputs),
        FEATURE_MAJOR_TILES: feature_major_source(kernel, precision, inputs),
        SEGMENTS: segment_source(kernel, precision, inputs) if is_ordered else None,
    }
    return {form: text for form, text in result.items() if text is not None}


def _as_graph(region: Region, inputs: tuple[fx.Node, ...]) -> fx.GraphModule:
    """The operations of a kernel as a graph of ATen operations."""
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
