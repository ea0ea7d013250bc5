"""Coordinates: evenly spaced numbers as constants, and the grids two vectors span as views."""

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.registry import PoplibsError


def linspace(
    graph: Graph, type: Type | str, left: float, right: float, count: int, name: str = ""
) -> Tensor:
    """A constant of `count` numbers from left to right, both included, evenly spaced."""
    type = as_type(type)
    if type not in (FLOAT, HALF) or count < 1:
        raise PoplibsError(
            f"linspace makes one or more floats or halves, got {count} of {type}.",
            source=user_source(),
            hint="use FLOAT or HALF and a count of 1 or more",
        )
    values = np.linspace(left, right, count)
    return graph.add_constant(type, [count], values, name or "linspace", mapping="linear")


def meshgrid_2d(graph: Graph, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Views [len(y), len(x)] of the x and the y of every point of a grid; nothing is copied."""
    del graph
    if x.rank != 1 or y.rank != 1:
        raise PoplibsError(
            f"meshgrid_2d expected two vectors, got shapes {list(x.shape)} and {list(y.shape)}.",
            source=user_source(),
            hint="flatten them",
        )
    return x.expand([0]).broadcast(y.n_elems, 0), y.expand([1]).broadcast(x.n_elems, 1)
