"""Embeddings with a sparse table: rows of it, and additions to what it has.

A row is picked by a one-hot vector. So a slice is a product with the transposed table, and an
update the gradient of its values: the buckets, their spilling and the plan are the layer's.
"""

from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops import encode_one_hot, scaled_add_to
from tremula.poplibs.popsparse.dynamic.layer import (
    SparseTensor,
    fully_connected_grad_a,
    fully_connected_sparse_grad_w,
)
from tremula.poplibs.popsparse.dynamic.params import FullyConnectedParams
from tremula.poplibs.popsparse.errors import SparsityError


def create_indices_tensor(
    graph: Graph, params: FullyConnectedParams, name: str = "indices"
) -> Tensor:
    """Room for as many row numbers as the params' batch."""
    return graph.add_variable(UNSIGNED_INT, [params.n_batch], name, mapping="linear")


def embedding_slice(
    graph: Graph, table: SparseTensor, indices: Tensor, sequence: Sequence,
    name: str = "embeddingSlice",
) -> Tensor:  # fmt: skip
    """Rows of the table, dense: [number of indices, columns]."""
    chosen = _one_hot(graph, table, indices, sequence, name)
    return fully_connected_grad_a(graph, table, chosen, sequence, name)


def embedding_update_add(
    graph: Graph, table: SparseTensor, slices: Tensor, indices: Tensor, sequence: Sequence, *,
    scale: float = 1.0, name: str = "embeddingUpdateAdd",
) -> None:  # fmt: skip
    """Add scale · slices to rows of the table, where it has values; repeated rows add up."""
    chosen = _one_hot(graph, table, indices, sequence, name)
    change = fully_connected_sparse_grad_w(graph, table, chosen, slices, sequence, name)
    scaled_add_to(graph, table.nz_values, change, scale, sequence, f"{name}/add")


def _one_hot(
    graph: Graph, table: SparseTensor, indices: Tensor, sequence: Sequence, name: str
) -> Tensor:
    p = table.plan.problem
    if indices.shape != (p.n_batch,) or indices.type != UNSIGNED_INT:
        raise SparsityError(
            f"{name} got indices of {indices.type} {list(indices.shape)}, expected "
            f"{UNSIGNED_INT} [{p.n_batch}].",
            source=user_source(),
            hint="the params' batch is the number of indices; create_indices_tensor makes them",
        )
    chosen = graph.add_variable(p.element, [p.n_batch, p.n_out], f"{name}/rows", mapping="linear")
    encode_one_hot(graph, indices, chosen, sequence, f"{name}/oneHot")
    return chosen
