"""popops.pad: a tensor with a border, as a view: it needs no program and has no storage."""

from collections.abc import Sequence as SequenceOf

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.registry import PoplibsError

MODES = ("CONSTANT", "REFLECT", "EDGE")
MAPPINGS = ("ZERO", "EDGE")


def pad(
    graph: Graph,
    tensor: Tensor,
    lower: SequenceOf[int],
    upper: SequenceOf[int],
    *,
    value: float = 0,
    mode: str = "CONSTANT",
    mapping: str = "ZERO",
) -> Tensor:
    """Add lower[d] elements before and upper[d] after each dimension d; negative ones remove.

    `mode` CONSTANT pads with `value`; EDGE repeats the outermost element; REFLECT mirrors without
    repeating it. Constants go to tile 0 or, with `mapping` EDGE, beside the elements they border.
    """
    lower, upper = _checked(tensor, lower, upper, mode, mapping)
    for dim, (before, after) in enumerate(zip(lower, upper, strict=True)):
        n = tensor.shape[dim]
        tensor = tensor.slice(min(n, max(0, -before)), max(0, n - max(0, -after)), dim)
        if before <= 0 and after <= 0:
            continue
        if mode == "CONSTANT":
            sides = [
                _constant(graph, tensor, dim, size, value, mapping, is_end)
                for is_end, size in enumerate((max(0, before), max(0, after)))
            ]
        else:
            border = _reflected if mode == "REFLECT" else _repeated
            sides = [
                border(tensor, dim, max(0, size), bool(is_end))
                for is_end, size in enumerate((before, after))
            ]
        tensor = concat([sides[0], tensor, sides[1]], dim)
    return tensor


def _constant(
    graph: Graph, tensor: Tensor, dim: int, size: int, value: float, mapping: str, is_end: int
) -> Tensor:
    shape = (*tensor.shape[:dim], size, *tensor.shape[dim + 1 :])
    border = graph.add_constant(tensor.type, shape, value, "padding")
    if mapping == "EDGE" and border.n_elems and tensor.n_elems:
        edge = _repeated(tensor, dim, size, bool(is_end))
        graph.set_tile_mapping(border, graph.get_tile_mapping(edge))
    return border


def _repeated(tensor: Tensor, dim: int, size: int, is_end: bool) -> Tensor:
    n = tensor.shape[dim]
    edge = tensor.slice(n - 1, n, dim) if is_end else tensor.slice(0, 1, dim)
    return edge.broadcast(size, dim)


def _reflected(tensor: Tensor, dim: int, size: int, is_end: bool) -> Tensor:
    n = tensor.shape[dim]
    inside = tensor.slice(n - 1 - size, n - 1, dim) if is_end else tensor.slice(1, 1 + size, dim)
    return inside.reverse(dim)


def _checked(
    tensor: Tensor, lower: SequenceOf[int], upper: SequenceOf[int], mode: str, mapping: str
) -> tuple[list[int], list[int]]:
    for what, value, known in (("mode", mode, MODES), ("mapping", mapping, MAPPINGS)):
        if value not in known:
            raise PoplibsError(
                f"pad has no {what} {value!r}.", source=user_source(), hint=suggest(value, known)
            )
    low, high = [int(n) for n in lower], [int(n) for n in upper]
    if not len(low) == len(high) == tensor.rank:
        raise PoplibsError(
            f"pad of a tensor of shape {list(tensor.shape)} got {len(low)} lower and {len(high)} "
            "upper numbers.",
            source=user_source(),
            hint=f"give {tensor.rank} of each, one per dimension",
        )
    sizes = np.array(tensor.shape, np.int64)
    left = sizes + np.minimum(low, 0) + np.minimum(high, 0)
    most = {"CONSTANT": None, "REFLECT": left - 1, "EDGE": np.where(left > 0, np.inf, 0)}[mode]
    if bool((left < 0).any()) or (most is not None and bool((np.maximum(low, high) > most).any())):
        raise PoplibsError(
            f"pad with {mode} by {low} and {high} does not fit a tensor of shape "
            f"{list(tensor.shape)}.",
            source=user_source(),
            hint="remove no more than there is; REFLECT adds less than there is",
        )
    return low, high
