"""Bytes seen as 8-bit floats."""

from tremula.base.types import QUARTER, UNSIGNED_CHAR
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor


def as_quarter(
    graph: Graph, codes: Tensor, metadata: Tensor, sequence: Sequence, name: str = ""
) -> Tensor:
    """Bytes as 8-bit floats of this metadata: a view, or a copy if they already have another."""
    variables, wanted = codes.variables, metadata.variable_ids()[0]
    ids = set(codes.variable_ids())
    if all(variables.metadata_of.get(v, wanted) == wanted for v in ids):
        variables.metadata_of.update(dict.fromkeys(ids, wanted))
        return codes.reinterpret(QUARTER)
    copy = graph.add_variable(QUARTER, codes.shape, name or "quarters", metadata=metadata)
    graph.set_tile_mapping(copy, graph.get_tile_mapping(codes))
    sequence.add(Copy(codes.reinterpret(UNSIGNED_CHAR), copy.reinterpret(UNSIGNED_CHAR)))
    return copy
