"""Weights and biases of a convolution: adding biases, updating both, transposing weights."""

from typing import Unpack

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.conv_params import ConvParams
from tremula.poplibs.poplin.product.convolution import (
    calculate_weight_deltas,
    transposed_and_flipped,
    weights_shape,
)
from tremula.poplibs.poplin.product.mat_mul import ProductOptions
from tremula.poplibs.popops import add_in_place, scaled_add_to
from tremula.poplibs.popops.reduction.reduce import reduce
from tremula.poplibs.poputil import create_broadcast_operand, replayed
from tremula.poplibs.registry import PoplibsError


def create_biases(graph: Graph, acts: Tensor, name: str = "") -> Tensor:
    """New biases, one per channel of acts [b, channels, field…], near where they are used."""
    _check_rank("create_biases", acts)
    return create_broadcast_operand(graph, acts, acts.type, 1, name=name or "biases")


@replayed
def add_bias(
    graph: Graph, acts: Tensor, biases: Tensor, sequence: Sequence, name: str = ""
) -> None:
    """acts[b, channel, field…] += biases[channel], in place."""
    _check_biases("add_bias", acts, biases)
    view = biases.reshape((1, acts.shape[1], *(1,) * (acts.rank - 2)))
    add_in_place(graph, acts, view, sequence, name or "addBias")


def convolution_bias_update(
    graph: Graph, deltas: Tensor, biases: Tensor, scale: float | Tensor, sequence: Sequence,
    name: str = "",
) -> None:  # fmt: skip
    """Add to biases: scale * the sum of deltas [b, channels, field…] over batch and field."""
    _check_biases("convolution_bias_update", deltas, biases)
    name = name or "biasUpdate"
    dims = [d for d in range(deltas.rank) if d != 1]
    total = reduce(graph, deltas, dims, "ADD", sequence, f"{name}/sum", out_type=biases.type)
    scaled_add_to(graph, biases, total, scale, sequence, name)


def convolution_weight_update(  # noqa: PLR0917 - what PopLibs takes
    graph: Graph, deltas: Tensor, weights: Tensor, acts: Tensor, params: ConvParams,
    scale: float | Tensor, sequence: Sequence, name: str = "",
    **options: Unpack[ProductOptions],
) -> None:  # fmt: skip
    """Add to weights, in place: scale * their gradient."""
    name = name or "weightUpdate"
    if weights.shape != weights_shape(params):
        raise PoplibsError(
            f"convolution_weight_update got weights of shape {list(weights.shape)}, expected "
            f"{list(weights_shape(params))}.",
            source=user_source(),
            hint="give weights as the parameters describe them",
        )
    found = calculate_weight_deltas(graph, deltas, acts, params, sequence, name, **options)
    scaled_add_to(graph, weights, found, scale, sequence, f"{name}/apply")


def weights_transpose_chans_flip_xy(
    graph: Graph, weights: Tensor, out: Tensor, sequence: Sequence, name: str = ""
) -> None:
    """out[g, i, c, kernel…] = weights[g, c, i, kernel… reversed]: one copy."""
    _ = graph  # every operation takes the graph first
    view = transposed_and_flipped(weights)
    if weights.rank < 3 or out.shape != view.shape:
        raise PoplibsError(
            f"weights_transpose_chans_flip_xy got {list(weights.shape)} and a result of "
            f"{list(out.shape)}, expected [g, c, i, kernel…] and [g, i, c, kernel…].",
            source=user_source(),
            hint="make the result with create_weights of the gradient's parameters",
        )
    sequence.add(Copy(view, out, name=name or "transposeFlip"))


def _check_rank(what: str, acts: Tensor) -> None:
    if acts.rank < 2:
        raise PoplibsError(
            f"{what} got a tensor of shape {list(acts.shape)}, expected [b, channels, field…].",
            source=user_source(),
            hint="give batch and channels at least",
        )


def _check_biases(what: str, acts: Tensor, biases: Tensor) -> None:
    _check_rank(what, acts)
    if biases.shape != (acts.shape[1],):
        raise PoplibsError(
            f"{what} got biases of shape {list(biases.shape)}, expected [{acts.shape[1]}]: one per "
            "channel.",
            source=user_source(),
            hint="make them with create_biases",
        )
