"""Indices out of range: on tiles they read zeros and write nothing; strict mode stops at them."""

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import schema_name
from tremula.poplar.programs import AbortOnCondition
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.expr import Expr, _1


def check_indices(
    tiles: Tiles, indices: Tensor, n_entries: int, *, first: int = 0, ignored: int | None = None
) -> None:
    """In strict mode, stop with the operation, its module and line if one is out of range."""
    if not tiles.options.checks_indices or not indices.n_elems:
        return
    is_outside: Expr = (_1 < first) | (_1 >= n_entries)
    if ignored is not None:
        is_outside = is_outside & (_1 != ignored)
    name = f"{tiles.name}/check"
    outside = popops.map(tiles.graph, is_outside, [indices], tiles.sequence, name)
    found = popops.reduce(tiles.graph, outside.flatten(), [0], "LOGICAL_OR", tiles.sequence, name)
    tiles.sequence.add(AbortOnCondition(found, _message(tiles, first, n_entries)))


def _message(tiles: Tiles, first: int, n_entries: int) -> str:
    module = (tiles.origin.module if tiles.origin is not None else "") or "the model"
    return (
        f"{schema_name(tiles.node)} in {module}: an index is out of range, expected {first} to"
        f" {n_entries - 1}; clamp or mask it (without strict mode it reads zeros, writes nothing)"
    )
