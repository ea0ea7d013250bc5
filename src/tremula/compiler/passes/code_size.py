"""What a step adds to a tile's code and vertices, before a program is compiled.

Exchange code by what tiles do to receive, as the memory pass counts it, without what they send and
what they copy within themselves.
"""

from collections.abc import Sequence

import numpy as np

from tremula.compiler.passes.exchange import MappedGraph, pieces_of_copy, remote_needs
from tremula.compiler.passes.intervals import edges_of_tables
from tremula.compiler.passes.receiving import controls_of_pieces, controls_of_reads
from tremula.compiler.passes.vertex_bytes import row_bytes
from tremula.compiler.program_ir import CopyPlan
from tremula.hardware import Chip
from tremula.poplar.vertices.columns import FrozenTable


def bytes_of_tables(tables: Sequence[FrozenTable], graph: MappedGraph) -> float:
    """Of an average tile of a chip: vertices, and code of the exchanges around them."""
    chip, n_tiles, edges = graph.target.chip, graph.target.n_tiles, edges_of_tables(tables)
    total = sum(int(row_bytes(table, chip).total.sum()) for table in tables)
    are_read = [edge for edge in edges if edge.spec.is_read]
    needs = remote_needs(are_read, graph)
    total += _receive_bytes(controls_of_reads(needs, are_read, n_tiles), chip)
    sent = remote_needs((e for e in edges if e.spec.is_written), graph).sent_home()
    total += _receive_bytes(controls_of_pieces(sent, sent.low, n_tiles), chip)
    return total / graph.target.tiles_per_ipu


def bytes_of_copy(plan: CopyPlan, graph: MappedGraph) -> float:
    """Of an average tile of a chip: code of the exchange of a copy."""
    pieces, goal = pieces_of_copy(plan, graph).between_tiles()
    controls = controls_of_pieces(pieces, goal, graph.target.n_tiles)
    return _receive_bytes(controls, graph.target.chip) / graph.target.tiles_per_ipu


def _receive_bytes(controls: np.ndarray, chip: Chip) -> int:
    """Of all tiles, each with some controls."""
    return (
        int(np.count_nonzero(controls)) * chip.n_bytes_exchange_code_per_phase
        + int(controls.sum()) * chip.n_bytes_exchange_code_per_receive_control
    )
