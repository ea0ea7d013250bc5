"""Custom operations of PopTransformer's decoders: norms and softmax of rows, caches that move on.

They decide where a word's values are. A single row stays where it is when it is normed; several
rows go to a tile each, together with scale and bias. Softmax takes each row to a tile. The cache of
keys and values is copied when a word is added, and spread evenly for the products. From
graphcore/PopTransformer, commit b5a7569 (custom_ops: NormCE, NormCEImpl, softmax, kv_cache); slots
are counted from the loops of its assembly.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

from typing import Any

import numpy as np
import torch

import poptorch
from tremula.base.types import FLOAT, Type, float32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.custom import Attributes, custom_operation
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Execute
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs import popops, poputil
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops import Reduction, expr

DOMAIN = "tremula.garden"
EPSILON = 1e-5
REMAP_GRAIN = 8  # elements that stay together when a tensor is spread evenly
START_SLOTS = 60  # of a worker: addresses, both loops, sums of accumulators, a square root
# Slots of an element: sums of values and of squares take eight at a time, the norm itself four
# operations for four.
SLOTS_PER_ELEMENT = 2 / 8 + 4 / 4


def row_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Layer norm of the last dimension."""
    (result,) = poptorch.custom_op([x, scale, bias], "RowNorm", DOMAIN, 1, example_outputs=[x])
    return result


def row_softmax(x: torch.Tensor, *, is_stable: bool) -> torch.Tensor:
    """Softmax of the last dimension; unless it is stable, the largest value is not subtracted."""
    (result,) = poptorch.custom_op(
        [x], "RowSoftmax", DOMAIN, 1, [x], attributes={"is_stable": int(is_stable)}
    )
    return result


def moved_cache(past: torch.Tensor, new: torch.Tensor, *, is_operation: bool) -> torch.Tensor:
    """New words in front of those of [..., length, size], whose last ones are dropped.

    PopTransformer's operation copies its cache before it moves it; without it the moved cache is a
    slice and a concatenation, which only the remap copies.
    """
    (result,) = poptorch.custom_op(
        [past, new], "MovedCache", DOMAIN, 1, [past], attributes={"is_operation": int(is_operation)}
    )
    return result


# -- norms -----------------------------------------------------------------------------------------


def _norm(tiles: Tiles, inputs: list[Tensor], _attributes: Attributes) -> list[Tensor]:
    x, scale, bias = inputs
    rows = _as_rows(x)
    make = _norm_where_it_is if rows.shape[0] == 1 else _norm_by_rows
    return [make(tiles, rows, scale, bias).reshape(list(x.shape))]


def _norm_where_it_is(tiles: Tiles, rows: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Both sums in shared stages; scale and bias go to where the row is."""
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    part = 1.0 / rows.shape[1]
    sums = [
        Reduction(rows, [1], operation, scale=part, out_type=FLOAT)
        for operation in ("ADD", "SQUARE_ADD")
    ]
    mean, power = popops.reduce_many(graph, sums, sequence, name)
    near = [graph.clone(rows, f"{name}/near") for _ in range(2)]
    for source, target in zip((scale, bias), near, strict=True):
        sequence.add(Copy(source.expand([0]), target))
    value, mean_, power_, *factors = (expr.PlaceHolder(n) for n in range(1, 6))
    centred = expr.Cast(value, FLOAT) - mean_
    normed = centred * expr.rsqrt(power_ - mean_ * mean_ + EPSILON)
    scaled = normed * expr.Cast(factors[0], FLOAT) + expr.Cast(factors[1], FLOAT)
    operands = [rows, mean.expand([1]), power.expand([1]), *near]
    return popops.map(graph, expr.Cast(scaled, rows.type), operands, sequence, name)


def _norm_by_rows(tiles: Tiles, rows: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Rows on as many tiles as there are, each with scale and bias next to it."""
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    n_rows, width = rows.shape
    starts = _row_starts(graph, n_rows)
    near = graph.add_variable(rows.type, [n_rows, width], f"{name}/rows")
    out = graph.add_variable(rows.type, [n_rows, width], name)
    n_used = len(starts) - 1
    factors = [
        graph.add_variable(rows.type, [n_used, width], f"{name}/{which}")
        for which in ("scale", "bias")
    ]
    compute_set = graph.add_compute_set(name)
    for tile in range(n_used):
        mine = slice(int(starts[tile]), int(starts[tile + 1]))
        fields = {"x": near[mine], "out": out[mine]}
        fields |= {"scale": factors[0][tile], "bias": factors[1][tile]}
        for edge in fields.values():
            graph.set_tile_mapping(edge, tile)
        edges = {field: edge.flatten() for field, edge in fields.items()}
        graph.add_vertex(compute_set, norm_codelet(rows.type), edges, tile=tile)
    sequence.add(Copy(rows, near))
    for source, target in zip((scale, bias), factors, strict=True):
        sequence.add(Copy(source.expand([0]).broadcast(n_used, 0), target))
    sequence.add(Execute(compute_set))
    return out


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape([x.n_elems // x.shape[-1], x.shape[-1]])


def _row_starts(graph: Graph, n_rows: int) -> np.ndarray:
    """int[n_used + 1]: where the rows of each tile begin; the first tiles have one more."""
    n_used = min(n_rows, graph.target.tiles_per_ipu)
    return np.concatenate([[0], np.cumsum([len(p) for p in np.array_split(range(n_rows), n_used)])])


@family
def norm_codelet(element: Type) -> type:
    class NormRows(MultiVertex):
        name = f"garden::NormRows<{element}>"
        provenance = "derived"
        x: Input[Vector[element]]
        scale: Input[Vector[element]]
        bias: Input[Vector[element]]
        out: Output[Vector[element]]

        def compute(self: Any, worker_id: int) -> None:
            n = len(self.scale)
            for row in range(worker_id, len(self.out) // n, self.n_workers):
                total, squares = float32(0), float32(0)
                for i in range(n):
                    value = float32(self.x[row * n + i])
                    total += value
                    squares += value * value
                mean = total / float32(n)
                factor = (squares / float32(n) - mean * mean + float32(EPSILON)) ** float32(-0.5)
                for i in range(n):
                    value = (float32(self.x[row * n + i]) - mean) * factor
                    self.out[row * n + i] = value * float32(self.scale[i]) + float32(self.bias[i])

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return _norm_cycles(v, chip)

        flops = no_flops

    return NormRows


def _norm_cycles(v: CostView, chip: Chip) -> np.ndarray:
    """Up to three rows are each shared by workers; of more, each worker has whole rows."""
    n = v.sizes["scale"]
    n_rows = v.sizes["out"] // n
    per_row = SLOTS_PER_ELEMENT * n
    is_shared = n_rows <= chip.n_workers // 2
    shared = per_row / (chip.n_workers // np.clip(n_rows, 1, chip.n_workers))
    slots = np.where(is_shared, shared, per_row * ceil_div(n_rows, chip.n_workers))
    return (chip.n_workers * (START_SLOTS + slots)).astype(np.int64)


def _norm_on_host(inputs: list[torch.Tensor], _attributes: Attributes) -> list[torch.Tensor]:
    x, scale, bias = (tensor.float() for tensor in inputs)
    result = torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias, EPSILON)
    return [result.to(inputs[0].dtype)]


# -- softmax ---------------------------------------------------------------------------------------


def _softmax(tiles: Tiles, inputs: list[Tensor], attributes: Attributes) -> list[Tensor]:
    (x,) = inputs
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    width = x.shape[-1]
    rows = graph.add_variable(x.type, [x.n_elems // width, width], f"{name}/rows")
    poputil.map_tensor_linearly(graph, rows, 1, width)
    sequence.add(Copy(x.reshape(list(rows.shape)), rows))
    if attributes["is_stable"]:
        largest = popops.reduce(graph, rows, [1], "MAX", sequence, f"{name}/max")
        popops.sub_in_place(graph, rows, largest.expand([1]), sequence, f"{name}/shift")
    popops.exp_in_place(graph, rows, sequence, f"{name}/exp")
    total = popops.reduce(graph, rows, [1], "ADD", sequence, f"{name}/sum", out_type=FLOAT)
    popops.inv_in_place(graph, total, sequence, f"{name}/inverse")
    factor = popops.cast(graph, total, x.type, sequence, f"{name}/cast")
    popops.mul_in_place(graph, rows, factor.expand([1]), sequence, f"{name}/scale")
    return [rows.reshape(list(x.shape))]


# -- caches ----------------------------------------------------------------------------------------


def _moved(tiles: Tiles, inputs: list[Tensor], attributes: Attributes) -> list[Tensor]:
    past, new = inputs
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    axis = past.rank - 2
    if attributes["is_operation"]:
        before, cache = (_by_rows(graph, past, f"{name}/{n}") for n in ("before", "cache"))
        sequence.add(Copy(past, before))
        sequence.add(Copy(_joined(before, new, axis), cache))
    else:
        cache = _joined(past, new, axis)
    spread = graph.add_variable(past.type, list(past.shape), f"{name}/spread")
    poputil.map_tensor_linearly(graph, spread, REMAP_GRAIN, REMAP_GRAIN)
    sequence.add(Copy(cache, spread))
    return [spread]


def _joined(past: Tensor, new: Tensor, axis: int) -> Tensor:
    return concat([new, past.slice(0, past.shape[axis] - new.shape[axis], axis)], axis)


def _by_rows(graph: Graph, like: Tensor, name: str) -> Tensor:
    """Rows of the last dimension in order: row i of n on tile i · tiles / n."""
    cache = graph.add_variable(like.type, list(like.shape), name)
    size, n_tiles = like.shape[-1], graph.target.tiles_per_ipu
    tiles = np.arange(n_tiles + 1)
    starts = size * ceil_div(tiles * (like.n_elems // size), n_tiles)
    is_used = starts[1:] > starts[:-1]
    begin, end, tile = starts[:-1][is_used], starts[1:][is_used], tiles[:-1][is_used]
    graph.set_tile_mapping(cache, TileMapping(begin, end, tile, graph.target.n_tiles))
    return cache


def _moved_on_host(inputs: list[torch.Tensor], _attributes: Attributes) -> list[torch.Tensor]:
    past, new = inputs
    return [torch.cat([new, past[..., : past.shape[-2] - new.shape[-2], :]], dim=-2)]


custom_operation("RowNorm", DOMAIN, host=_norm_on_host, tiles=_norm)
custom_operation(
    "RowSoftmax", DOMAIN, host=lambda inputs, _: [inputs[0].softmax(-1)], tiles=_softmax
)
custom_operation("MovedCache", DOMAIN, host=_moved_on_host, tiles=_moved)
