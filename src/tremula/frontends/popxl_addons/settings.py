"""Settings of a whole program: patterns, memory of products, and how products are planned."""

from collections.abc import Iterable, Mapping

import popxl
from tremula.base.errors import suggest
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.ops.choices import MEMORIES, MEMORY
from tremula.frontends.popxl_addons.notes import notes_of

LEVELS = ("no_patterns", "minimal", "default", "all")
Proportions = Mapping[int, float] | Iterable[float]


def apply_pre_alias_patterns(ir: popxl.Ir, level: str = "default") -> None:
    """Apply PopART's patterns to all graphs, up to a level.

    PopART needs them to remove operations that it cannot lower, such as all-reduces of identical
    inputs. Graphs here run as they are, so that only the level is checked and kept.
    """
    if level not in LEVELS:
        raise ValueError(
            f"level must be one of {', '.join(LEVELS)}, got {level!r}: {suggest(level, LEVELS)}"
        )
    notes_of(ir)["pattern_level"] = level


def set_available_memory_proportion_by_ipu(ir: popxl.Ir, proportions: Proportions) -> None:
    """Set the share of a tile's memory that products may use, by IPU, in all graphs.

    IPUs without an entry take that of IPU 0. Proportions set on single operations are replaced.
    """
    share_of = _checked(proportions)
    notes_of(ir)["available_memory"] = share_of
    for op in ir.ops_of_all_graphs():
        _set(op, share_of)


def set_graph_available_memory_proportion_by_ipu(graph: Graph, proportions: Proportions) -> None:
    """Set the share of a tile's memory for products of a graph and of all graphs it calls."""
    share_of = _checked(proportions)
    waiting, seen = [graph], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting += current.called_graphs
        for op in current.ops:
            _set(op, share_of)


def _checked(proportions: Proportions) -> dict[int, float]:
    if isinstance(proportions, Mapping):
        pairs = {int(ipu): float(share) for ipu, share in proportions.items()}
    else:
        pairs = {ipu: float(share) for ipu, share in enumerate(proportions)}
    if not pairs:
        raise ValueError("At least the proportion of IPU 0 is needed, got none")
    for ipu, share in pairs.items():
        if not 0 <= share <= 1:
            raise ValueError(f"The proportion of IPU {ipu} must be between 0 and 1, got {share}")
    return pairs


def _set(op: Op, share_of: Mapping[int, float]) -> None:
    share = share_of.get(op.ipu, next(iter(share_of.values())))
    for name, value in ((MEMORY, share), (MEMORIES, [share])):
        if name in op.attributes:
            op.attributes[name] = value
            op.graph.changed()


def disable_fc_pass(ir: popxl.Ir) -> None:
    """Do not keep transposed weights for products of a backward pass, to save memory.

    The planner here keeps none for PopXL programs; the choice is kept for reports.
    """
    notes_of(ir)["fully_connected_pass"] = False


def enable_fc_pass(ir: popxl.Ir) -> None:
    """Undo `disable_fc_pass`."""
    notes_of(ir)["fully_connected_pass"] = True
