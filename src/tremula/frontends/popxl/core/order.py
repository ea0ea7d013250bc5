"""`in_sequence`: which operations must run one after the other.

Operations always run in the order they were made, which meets every such constraint; the
constraints are kept for those who look at or rearrange a graph.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tremula.base.context_values import pushed
from tremula.frontends.popxl.core.context import SEQUENCES
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op


class OrderedBlock:
    """A block: operations of each graph that the next must follow, and all that were made in it."""

    def __init__(self, mode: bool):
        self.mode = mode
        self.last: dict[Graph, list[Op]] = {}
        self.made: dict[Graph, list[Op]] = {}


@contextmanager
def in_sequence(mode: bool | Literal["pass"] = True) -> Iterator[bool | None]:
    """Operations made inside run one after the other; with False, the block is one unordered unit.

    "pass" leaves the order as it is around the block.
    """
    if mode is None:
        raise TypeError("`None` cannot be passed to `in_sequence`: use False or 'pass'")
    if mode not in (True, False, "pass"):
        raise TypeError(f"in_sequence takes True, False or 'pass', got {mode!r}")
    if mode == "pass":
        yield None
        return
    block = OrderedBlock(bool(mode))
    around = _enclosing()
    if around is not None and around.mode is True:
        block.last = {graph: list(ops) for graph, ops in around.last.items()}
    try:
        with pushed(SEQUENCES, block):
            yield block.mode
    finally:
        if around is not None:
            _close(block, around)


def _enclosing() -> OrderedBlock | None:
    sequences = SEQUENCES.get()
    return sequences[-1] if sequences else None


def _close(block: OrderedBlock, around: OrderedBlock) -> None:
    for graph, ops in block.made.items():
        around.made.setdefault(graph, []).extend(ops)
        if around.mode is True:
            around.last[graph] = block.last[graph] if block.mode is True else list(ops)


def order(op: Op) -> None:
    """Put a new operation behind those that the open blocks want before it."""
    block = _enclosing()
    if block is None:
        return
    op.after.extend(block.last.get(op.graph, ()))
    block.made.setdefault(op.graph, []).append(op)
    if block.mode is True:
        block.last[op.graph] = [op]
