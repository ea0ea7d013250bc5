"""Copies of tensors: on another IPU, in another graph, or beside the original."""

import numpy as np

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.layout import moved_pieces, variables_met
from tremula.poplar.tensors.runs import row_major
from tremula.poplar.tensors.tensor import Tensor, variable_tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.poputil.layout import clone_in_order, distinct_part, repeats_elements
from tremula.poplibs.poputil.replay import replayed
from tremula.poplibs.registry import PoplibsError


def clone_to_ipu(graph: Graph, tensor: Tensor, ipu: int, name: str = "") -> Tensor:
    """A clone on one IPU: each element stays on the tile of the same number within its IPU."""
    n_ipus, per_ipu = graph.target.n_ipus, graph.target.tiles_per_ipu
    if not 0 <= ipu < n_ipus:
        raise PoplibsError(
            f"IPU {ipu} does not exist: the graph has {n_ipus}.",
            source=user_source(),
            hint=f"use 0 to {n_ipus - 1}",
        )

    def moved(top: np.ndarray) -> np.ndarray:
        own = graph.tiles.to_own(top)
        return graph.tiles.to_top(own % per_ipu + ipu * per_ipu)

    return clone_in_order(graph, tensor, name, moved=moved)


def copy_to_ipu(
    graph: Graph, tensor: Tensor, sequence: Sequence, ipu: int, name: str = ""
) -> Tensor:
    """A clone on one IPU, and the copy that fills it; repeated elements travel once."""
    distinct, restored = distinct_part(tensor)
    clone = clone_to_ipu(graph, distinct, ipu, name)
    sequence.add(Copy(distinct, clone))
    return restored(clone)


def create_ipu_copy(
    graph: Graph, tensor: Tensor, ipu: int, name: str = ""
) -> tuple[Tensor, Tensor, Tensor]:
    """(clone on an IPU, source, destination): the caller adds the copy later."""
    distinct, restored = distinct_part(tensor)
    clone = clone_to_ipu(graph, distinct, ipu, name)
    return restored(clone), distinct, clone


def clone_to_graph(source: Graph, target: Graph, tensor: Tensor, name: str = "") -> Tensor:
    """A clone in another virtual graph of the same variables, on tiles of the same numbers."""
    if source.replication_factor != target.replication_factor:
        raise PoplibsError(
            f"graphs with {source.replication_factor} and {target.replication_factor} replicas "
            "cannot share a tensor.",
            source=user_source(),
            hint="use graphs with equal replication factors",
        )
    mapping = source.get_tile_mapping(tensor)
    n_needed = int(mapping.tile.max(initial=-1)) + 1
    if n_needed > target.target.n_tiles:
        raise PoplibsError(
            f"the tensor is on {n_needed} tiles, the other graph has {target.target.n_tiles}.",
            source=user_source(),
            hint="map the tensor to fewer tiles, or use a larger graph",
        )
    clone = target.add_variable(
        tensor.type, tensor.shape, name or "clone", metadata=tensor.metadata
    )
    target.set_tile_mapping(
        clone, TileMapping(mapping.begin, mapping.end, mapping.tile, target.target.n_tiles)
    )
    return clone


@replayed
def duplicate(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """A clone with a copy of the contents."""
    clone = clone_in_memory(graph, tensor, name or "duplicate")
    memory = _whole_memory(tensor)
    sequence.add(Copy(tensor, clone) if memory is None else Copy(memory, _whole(clone)))
    return clone


def clone_in_memory(graph: Graph, tensor: Tensor, name: str = "") -> Tensor:
    """A clone whose elements follow each other in memory as the tensor's do.

    A view of all of a variable, in whatever order, is the same view of a variable like it.
    """
    memory = _whole_memory(tensor)
    if memory is None:
        return clone_in_order(graph, tensor, name)
    variables = tensor.variables
    clone = clone_in_order(graph, memory, name)
    (old,), (new,) = variables_met(memory), variables_met(clone)
    if old in variables.notes:
        variables.notes[new] = variables.notes[old]
    shift = clone.offset - memory.offset
    if tensor.pieces is None:
        return Tensor(variables, tensor.type, tensor.offset + shift, tensor.shape, tensor.strides)
    pieces = moved_pieces(tensor.pieces, tensor.type.n_bytes, variables, {old: new})
    return Tensor(variables, tensor.type, tensor.offset, tensor.shape, tensor.strides, pieces)


def _whole_memory(tensor: Tensor) -> Tensor | None:
    """The variable that a tensor shows every element of, once and in another order, else None."""
    met = variables_met(tensor)
    is_in_order = tensor.pieces is None and tensor.strides == row_major(tensor.shape)
    if len(met) != 1 or is_in_order:
        return None
    memory = variable_tensor(tensor.variables, met[0]).flatten()
    is_whole = memory.type is tensor.type and memory.n_elems == tensor.n_elems
    return memory if is_whole and not repeats_elements(tensor) else None


def _whole(tensor: Tensor) -> Tensor:
    (variable,) = variables_met(tensor)
    return variable_tensor(tensor.variables, variable).flatten()


def clone_and_expand_aliasing(graph: Graph, tensor: Tensor, name: str = "") -> Tensor:
    """A clone in which every repeat of an element has its own storage."""
    mapping = graph.get_tile_mapping(tensor)
    clone = graph.add_variable(tensor.type, tensor.shape, name or "clone", metadata=tensor.metadata)
    graph.set_tile_mapping(clone, mapping)
    return clone
