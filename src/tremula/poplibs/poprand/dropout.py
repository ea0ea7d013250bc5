"""Dropout: elements kept with a probability and scaled, one by one or in the groups of a shape."""

# ruff: noqa: PLR0917 - the signatures are PopLibs'
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.popops.elementwise.map import map as map_elements
from tremula.poplibs.poprand.codelets import bernoulli_codelet, dropout_codelet
from tremula.poplibs.poprand.distributions import check_probability, fill, new_like
from tremula.poplibs.poputil import broadcast_view
from tremula.poplibs.registry import PoplibsError


def dropout(
    graph: Graph, seed: Tensor | None, seed_modifier: int, tensor: Tensor, reference: Tensor,
    keep_probability: float, scale: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """The tensor with each element kept and scaled, or zero; laid out as the reference.

    With the same seed, modifier and reference the same elements are kept, as a backward pass needs.
    """
    _check_operand("dropout", tensor, keep_probability)
    if reference.shape != tensor.shape:
        raise PoplibsError(
            f"dropout got a tensor of shape {list(tensor.shape)} and a reference of shape "
            f"{list(reference.shape)}.",
            source=user_source(),
            hint="both must have the same shape; shaped_dropout drops groups",
        )
    out = new_like(graph, reference, tensor.type, name or "dropout")
    state = {"keep": keep_probability, "scale": scale}
    codelet = dropout_codelet(tensor.type)
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "dropout", tensor)
    return out


def shaped_dropout(
    graph: Graph, seed: Tensor | None, seed_modifier: int, tensor: Tensor, reference: Tensor,
    keep_probability: float, scale: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Dropout in groups: those that share an element of the reference stay or go together."""
    _check_operand("shaped_dropout", tensor, keep_probability)
    broadcast_view(reference, tensor.shape)
    mask = new_like(graph, reference, tensor.type, (name or "dropout") + "/mask")
    state = {"probability": keep_probability, "one": scale}
    codelet = bernoulli_codelet(tensor.type)
    fill(graph, seed, seed_modifier, mask, codelet, state, sequence, name or "dropout")
    return map_elements(graph, _1 * _2, [tensor, mask], sequence, name or "dropout")


def _check_operand(what: str, tensor: Tensor, keep_probability: float) -> None:
    if tensor.type not in (FLOAT, HALF):
        raise PoplibsError(
            f"{what} does not work on {tensor.type}, only on {FLOAT}, {HALF}.",
            source=user_source(),
            hint="cast the tensor",
        )
    check_probability(what, keep_probability)
