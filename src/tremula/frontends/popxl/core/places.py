"""Which chip and tiles a tensor is on, as far as the graphs say it."""

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.tensor import Tensor

Place = tuple[int, str]  # chip and tile set


def check_in_graph(graph: Graph, *args: object, **tensors: Tensor) -> None:
    """Raise unless all operands, passed by name, are tensors of a graph."""
    _check_named(args)
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"The input `{name}` is not a Tensor: {t!r} of type {type(t).__name__}")
        if t not in graph:
            raise ValueError(
                f"The input tensor `{name}` is not in the current graph, {graph.id or 'main'}: pass"
                " it to the graph as an input"
            )


def check_tensor_ipu_and_tile_set(*args: object, **tensors: Tensor) -> None:
    """Raise unless all operands, passed by name, are on one chip and one tile set.

    A tensor whose place is not known yet, such as an unused variable, can be anywhere.
    """
    _check_named(args)
    places = {name: place for name, t in tensors.items() if (place := place_of(t)) is not None}
    for i, what in enumerate(("IPUs", "tile sets")):
        first = next(iter(places), "")
        for name, place in places.items():
            if place[i] != places[first][i]:
                raise ValueError(
                    f"The input tensors `{first}` and `{name}` are located on different {what}:"
                    f" {places[first][i]} != {place[i]}. Copy one with ops.ipu_copy or"
                    " ops.io_tile_copy"
                )


def _check_named(args: tuple) -> None:
    if args:
        raise TypeError("Tensors are passed by name, so that errors can name them")


def place_of(t: Tensor) -> Place | None:
    """Where the operation that makes a tensor runs; of a call, where its graph makes it."""
    op = t.producer
    if op is None:
        user = next((other for other in t.graph.ops if t in other.inputs), None)
        return None if user is None else (user.ipu, user.tile_set)
    if op.kind in {"Call", "Loop", "If"}:
        inner = op.graphs[0].outputs[op.outputs.index(t)]
        return None if inner.producer is None else place_of(inner)
    if not op.has_ipu:
        return None
    if op.kind == "IpuCopy":
        return op.attributes["destination"], op.tile_set
    return op.ipu, op.tile_set
