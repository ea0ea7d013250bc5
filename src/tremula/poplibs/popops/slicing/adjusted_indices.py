"""Where the second stage of a planned multi-slice looks: indices among collected partial results.

A lookup's row among them is position + index // rows of a part * lookups of its tile. PopLibs
counts up and then takes three steps for this expression, since it makes no codelet of one over
repeated elements (`analyseExpr` in popops/ExpressionGenerator.cpp).
"""

import numpy as np

from tremula.base.types import UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.runs import Pieces, Runs, ones
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops.elementwise.codelets import CodeletPlan, element_codelet
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.popops.elementwise.fused import fuse
from tremula.poplibs.popops.elementwise.map import map as map_expr
from tremula.poplibs.popops.iota import iota
from tremula.poplibs.popops.slicing.codelets import row_part_codelet
from tremula.poplibs.popops.vertex_layout import Form, Operand, spread_vertices
from tremula.poplibs.poputil import tile_regions
from tremula.poplibs.poputil.steps import run_vertices

Ints = np.ndarray


def adjusted_indices(
    graph: Graph,
    rows: Tensor,
    n_collected: Ints,
    part_rows: int,
    n_entries: int,
    sequence: ProgramSequence,
    name: str,
) -> Tensor:
    """UNSIGNED_INT [n] like `rows`, the indices; each tile collects `n_collected` of them in turn.

    Parts of the table have `part_rows` of its `n_entries` rows.
    """
    position = _positions(graph, rows, n_collected, sequence, name)
    part = _parts(graph, rows, part_rows, n_entries, sequence, name)
    first = _times_counts(graph, part, np.repeat(n_collected, n_collected), sequence, name)
    return map_expr(graph, _1 + _2, [position, first], sequence, f"{name}/adjustedIndices")


def gathered(tensor: Tensor, runs: Runs) -> Tensor:
    """A view of elements at any addresses, in the order of their runs."""
    pieces = Pieces(runs)
    return Tensor(tensor.variables, tensor.type, 0, (int(pieces.start[-1]),), (1,), pieces)


def _positions(
    graph: Graph, rows: Tensor, n_collected: Ints, sequence: ProgramSequence, name: str
) -> Tensor:
    """Of every lookup among those of its tile: one element if that is the first for all."""
    longest = int(n_collected.max(initial=1))
    counted = graph.clone(rows[:longest], f"{name}/position")
    iota(graph, counted, sequence, f"{name}/iota")
    if longest == 1:
        return counted
    start = np.full(len(n_collected), counted.offset)
    return gathered(counted, Runs(start, n_collected, ones(len(n_collected))))


def _parts(
    graph: Graph,
    rows: Tensor,
    part_rows: int,
    n_entries: int,
    sequence: ProgramSequence,
    name: str,
) -> Tensor:
    """UNSIGNED_INT [n]: which part of the table has each lookup's row."""
    part = graph.clone(rows, f"{name}/part")
    regions = tile_regions(graph, rows)
    fields = {
        "indices": Slices(rows, regions.begin, regions.end),
        "part": Slices(part, regions.begin, regions.end),
        "n_rows": part_rows,
        "n_entries": n_entries,
    }
    codelet = row_part_codelet()
    run_vertices(graph, codelet, fields, regions.tile, sequence, f"{name}/adjustedIndices")
    return part


def _times_counts(
    graph: Graph, part: Tensor, counts: Ints, sequence: ProgramSequence, name: str
) -> Tensor:
    """Each element times its count, which is a constant that many neighbours share.

    PopLibs looks for repeated scalars tile by tile: a tile whose elements have few of them takes
    vertices with a scalar operand, another one vertices over vectors (`constructBroadcastBinaryOp`
    in popops/ElementWise.cpp).
    """
    out = graph.clone(part, f"{name}/first")
    values, which = np.unique(counts, return_inverse=True)
    constant = graph.add_constant(
        UNSIGNED_INT, values.shape, values.astype(np.uint32), f"{name}/count", mapping=0
    )
    is_mixed = _with_many_runs(graph, part, counts)
    compute_set = graph.add_compute_set(f"{name}/adjustedIndices")
    for i in range(len(values)):
        scalar = Operand("in2", Form.SCALAR, constant.slice(i, i + 1, 0))
        _add_products(graph, compute_set, part, scalar, out, ~is_mixed & (which == i))
    single = np.flatnonzero(is_mixed)
    same = Runs(constant.offset + which[single], ones(len(single)), ones(len(single)))
    vector = Operand("in2", Form.VECTOR, gathered(constant, same))
    _add_products(graph, compute_set, part, vector, out, is_mixed)
    sequence.add(Execute(compute_set))
    return out


def _with_many_runs(graph: Graph, tensor: Tensor, counts: Ints) -> Ints:
    """bool[n]: elements of regions where runs of equal counts are too short for scalar operands.

    PopLibs deals a region to workers, cuts their shares at the ends of runs, and leaves scalars if
    these pieces are more than workers and shorter than two grains (`exitIfInefficient`).
    """
    target, regions = graph.target, tile_regions(graph, tensor)
    n_workers, least = target.n_worker_contexts, 2 * target.chip.atomic_store_bytes
    changes = np.concatenate(([0], np.cumsum(counts[1:] != counts[:-1])))
    n = regions.n_elems
    shares = np.minimum(ceil_div(n, least), n_workers)
    pieces = shares + changes[regions.end - 1] - changes[regions.begin]
    is_mixed = (pieces > n_workers) & (n < least * pieces)
    order = np.argsort(regions.begin)
    return np.repeat(is_mixed[order], n[order])


def _add_products(
    graph: Graph, compute_set: ComputeSet, part: Tensor, factor: Operand, out: Tensor, where: Ints
) -> None:
    """Vertices for the elements where `where` is true."""
    if not where.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], where, [False]))))
    begin, size = edges[::2], edges[1::2] - edges[::2]
    runs = [Runs(t.offset + begin, size, ones(len(size))) for t in (part, out)]
    source, target = gathered(part, runs[0]), gathered(out, runs[1])
    operands = [Operand("in1", Form.VECTOR, source), factor]
    body = fuse(_1 * _2, [part.type, part.type])
    forms = tuple(o.form for o in operands)
    plans = [CodeletPlan(body, forms, False, is_multi) for is_multi in (False, True)]
    spread_vertices(
        graph, compute_set, lambda is_multi: element_codelet(plans[is_multi]), plans[0].out,
        target, operands,
    )  # fmt: skip
