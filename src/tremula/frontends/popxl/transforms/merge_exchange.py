"""Transfers that move together: loads and stores made in one block become one exchange."""

from collections.abc import Iterator
from contextlib import contextmanager

from tremula.frontends.popxl.core.context import get_current_graph, io_tiles
from tremula.frontends.popxl.core.op import TRANSFERS, Op
from tremula.frontends.popxl.core.order import in_sequence


@contextmanager
def merge_exchange() -> Iterator[list[Op]]:
    """Loads and stores made inside move together, as one exchange."""
    graph, made = get_current_graph(), []
    handle = graph.register_op_created_hook(made.append)
    try:
        yield made
    finally:
        graph.remove_op_created_hook(handle)
    transfers = [op for op in made if op.kind in TRANSFERS]
    number = next_exchange(graph)
    for op in transfers:
        op.attributes["exchange"] = number


def next_exchange(graph: object) -> int:
    """The number of the next exchange of a graph."""
    used = [op.attributes.get("exchange", -1) for op in graph.ops]  # type: ignore[attr-defined]
    return max(used, default=-1) + 1


@contextmanager
def io_tile_exchange(verify_overlap: bool = True) -> Iterator[None]:
    """Transfers made inside run on I/O tiles, as one exchange that overlaps with computing."""
    with io_tiles(), in_sequence(False), merge_exchange() as made:
        yield
        if not verify_overlap:
            return
        others = [op for op in made if op.kind not in TRANSFERS and op.kind != "Init"]
        if others:
            raise RuntimeError(
                "Only loads and stores can overlap with computing, but io_tile_exchange holds"
                f" {', '.join(op.kind for op in others)}"
            )
        transfers = [op for op in made if op.kind in TRANSFERS]
        loaded = {t for op in transfers for t in op.outputs}
        chained = [op for op in transfers if any(t in loaded for t in op.inputs)]
        if chained:
            raise RuntimeError(
                "Transfers of io_tile_exchange must be independent to be one exchange, but"
                f" {chained[0]!r} takes what another one loads"
            )
