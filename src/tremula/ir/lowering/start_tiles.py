"""The tile where a tensor begins that nothing else places: one that its name chooses.

A model has many biases, constants, losses and counters, and most are small. If all began at tile 0,
a few tiles would have all of them, the code that computes with them and the exchanges around it.
PopART takes the next tile for each constant and scalar (willow/src/popx/irlowering.cpp, `getConst`)
and begins each linear map where the one before ended (popx/linearmapper.cpp). Its equal layers are
functions by then; here they are found by their layouts. So a name chooses the tile, and names of
equal layers differ in numbers alone.
"""

import re
import zlib

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil


def start_tile(graph: Graph, shape: list[int], content: bytes) -> int:
    """The tile of a graph where what is named so, or has this content, begins."""
    seen = zlib.crc32(np.array([*shape], np.int64).tobytes(), zlib.crc32(content))
    return seen % graph.target.n_tiles


def spread_by_name(graph: Graph, type: Type, shape: list[int], name: str) -> Tensor:
    """A new variable, spread from the tile that its name chooses."""
    result = graph.add_variable(type, shape, name)
    _map_by_name(graph, result, name)
    return result


def spread_if_small(graph: Graph, type: Type, shape: list[int], name: str) -> Tensor:
    """A new variable; one that covers all tiles begins at tile 0, as others of its shape do.

    So operands of one operation lie on the same tiles, and none has to be brought to another.
    """
    result = graph.add_variable(type, shape, name)
    mapping = poputil.calc_linear_tile_mapping(graph, result)
    if len(mapping.begin) == graph.target.n_tiles:
        graph.set_tile_mapping(result, mapping)
    else:
        _map_by_name(graph, result, name)
    return result


def _map_by_name(graph: Graph, tensor: Tensor, name: str) -> None:
    begin = start_tile(graph, list(tensor.shape), re.sub(r"\d+", "", name).encode())
    poputil.map_tensor_linearly_with_offset(graph, tensor, begin)
