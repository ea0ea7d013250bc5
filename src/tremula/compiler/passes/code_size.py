"""What a step adds to a tile's code and vertices, before a program is compiled.

Exchange code by the fragments that tiles receive, as the memory pass counts it, without what they
send and what they copy within themselves.
"""

from collections.abc import Sequence

import numpy as np

from tremula.compiler.lower.copies import contiguous_pairs
from tremula.compiler.passes.exchange import MappedGraph, remote_needs
from tremula.compiler.passes.intervals import edges_of_tables
from tremula.compiler.passes.vertex_bytes import row_bytes
from tremula.compiler.program_ir import CopyPlan
from tremula.hardware import Chip
from tremula.poplar.vertices.columns import FrozenTable


def bytes_of_tables(tables: Sequence[FrozenTable], graph: MappedGraph) -> float:
    """Of an average tile of a chip: vertices, and code of the exchanges around them."""
    chip, edges = graph.target.chip, edges_of_tables(tables)
    total = sum(int(row_bytes(table, chip).total.sum()) for table in tables)
    for chosen in ([e for e in edges if e.spec.is_read], [e for e in edges if e.spec.is_written]):
        total += _exchange_bytes(remote_needs(chosen, graph).here, chip)
    return total / graph.target.tiles_per_ipu


def bytes_of_copy(plan: CopyPlan, graph: MappedGraph) -> float:
    """Of an average tile of a chip: code of the exchange of a copy."""
    source, destination, n_bytes = contiguous_pairs(plan)
    owner, low, high, from_tile = graph.tile_map.split(source, source + n_bytes)
    goal = destination[owner] + (low - source[owner])
    part, _, _, to_tile = graph.tile_map.split(goal, goal + (high - low))
    is_remote = from_tile[part] != to_tile
    return _exchange_bytes(to_tile[is_remote], graph.target.chip) / graph.target.tiles_per_ipu


def _exchange_bytes(receiver: np.ndarray, chip: Chip) -> int:
    """Of all tiles; a fragment has an entry in `receiver`."""
    n_tiles = np.count_nonzero(np.bincount(receiver))
    return (
        n_tiles * chip.n_bytes_exchange_code_per_phase
        + len(receiver) * chip.n_bytes_exchange_code_per_receive_fragment
    )
