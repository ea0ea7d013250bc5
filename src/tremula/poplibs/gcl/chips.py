"""Collectives between the chips of one graph: a tensor with a row on each chip.

The graph knows its chips, so a round is one copy in which every chip sends: half of each part goes
one way round and half the other, and both directions of every link are busy.
"""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.gcl.collectives import combine_of
from tremula.poplibs.popops.elementwise.functions import mul_in_place
from tremula.poplibs.registry import PoplibsError

Order = list[int]


def all_reduce_between_chips(
    graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor [chips, …]: each row, on its own chip, is the reduction of all rows."""
    name = name or "allReduce"
    own = reduce_scatter_between_chips(graph, tensor, operation, sequence, name)
    result = all_gather_between_chips(graph, own, sequence, name)
    n, n_row = tensor.shape[0], tensor.n_elems // max(1, tensor.shape[0])
    return result.reshape((n, result.n_elems // n)).slice(0, n_row, 1).reshape(tensor.shape)


def reduce_scatter_between_chips(
    graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor [chips, part]: row c, on chip c, is part c of the rows' reduction.

    What the last parts have beyond the data is undefined.
    """
    name = name or "reduceScatter"
    combine = combine_of("reduce_scatter_between_chips", tensor, operation)
    order, parts = _parts(graph, tensor, sequence, name)
    n, size = len(order), parts.shape[2]
    if n == 1:
        return parts.reshape((1, size))
    halves = []
    for ring, (begin, end) in zip((order, order[::-1]), _halves(size), strict=True):
        halves.append((ring, parts.slice(begin, end, 2)))
    for step in range(1, n):
        _send_on(graph, halves, step, combine, sequence, name)
    own = concat([parts[chip, chip].expand([0]) for chip in range(n)])
    if operation == "MEAN":
        mul_in_place(graph, own, 1 / n, sequence, f"{name}/mean")
    return own


def all_gather_between_chips(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor [chips, chips, …]: row c, on chip c, holds all rows of the tensor."""
    name = name or "allGather"
    order = _checked_rows(graph, tensor, "all_gather_between_chips")
    n, n_row = len(order), tensor.n_elems // len(order)
    result = _on_chips(graph, tensor, (n, n, n_row), f"{name}/found")
    rows = tensor.reshape((n, n_row))
    sequence.add(Copy(rows, concat([result[c, c].expand([0]) for c in range(n)])))
    rings = list(zip((order, order[::-1]), _halves(n_row), strict=True))
    for step in range(n - 1):
        sent, received = [], []
        for ring, (begin, end) in rings:
            for index, chip in enumerate(ring):
                part, goal = ring[(index - step) % n], ring[(index + 1) % n]
                sent.append(result[chip, part].slice(begin, end))
                received.append(result[goal, part].slice(begin, end))
        sequence.add(Copy(concat(sent), concat(received)))
    return result.reshape((n, *tensor.shape))


# -- inside ----------------------------------------------------------------------------------------


def _send_on(
    graph: Graph,
    halves: list[tuple[Order, Tensor]],
    step: int,
    combine: Callable[..., None],
    sequence: Sequence,
    name: str,
) -> None:
    """One round: every chip sends the part that has come to it, and adds its own to what comes."""
    sent, own = [], []
    for ring, parts in halves:
        n = len(ring)
        for index, chip in enumerate(ring):
            goal, part = ring[(index + 1) % n], ring[(index - step) % n]
            sent.append(parts[chip, part])
            own.append(parts[goal, part])
    target = concat(own)
    received = graph.clone(target, f"{name}/received")
    sequence.add(Copy(concat(sent), received))
    combine(graph, target, received, sequence, f"{name}/combine")


def _parts(graph: Graph, tensor: Tensor, sequence: Sequence, name: str) -> tuple[Order, Tensor]:
    """The chips as a ring, and [chips, parts, part]: a copy of each row on its chip."""
    order = _checked_rows(graph, tensor, "reduce_scatter_between_chips")
    n, n_row = len(order), tensor.n_elems // len(order)
    size = -(-n_row // n)
    parts = _on_chips(graph, tensor, (n, n, size), f"{name}/parts")
    flat = parts.reshape((n, n * size))
    sequence.add(Copy(tensor.reshape((n, n_row)), flat.slice(0, n_row, 1)))
    return order, parts


def _on_chips(graph: Graph, like: Tensor, shape: tuple[int, int, int], name: str) -> Tensor:
    """A tensor whose row c is spread over the tiles of chip c."""
    rows = []
    n_tiles = graph.target.tiles_per_ipu
    for chip in range(shape[0]):
        part = graph.create_virtual_graph(range(chip * n_tiles, (chip + 1) * n_tiles))
        row = part.add_variable(like.type, shape[1:], f"{name}{chip}", mapping="linear")
        rows.append(row.expand([0]))
    return concat(rows)


def _checked_rows(graph: Graph, tensor: Tensor, what: str) -> Order:
    """Chips in a ring: up the even ones, down the odd ones, as their links form a ladder."""
    n = graph.target.n_ipus
    if not tensor.rank or tensor.shape[0] != n:
        raise PoplibsError(
            f"{what} got a tensor of shape {tensor.shape}, expected a row for each of {n} chips.",
            source=user_source(),
            hint=f"give a tensor of shape [{n}, …], row c on chip c",
        )
    return [*range(0, n, 2), *reversed(range(1, n, 2))]


def _halves(n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (0, n // 2), (n // 2, n)
