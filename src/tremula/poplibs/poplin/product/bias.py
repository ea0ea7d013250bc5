"""Weights and biases of a convolution: adding biases, updating both, transposing weights."""

from collections.abc import Iterator
from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.conv_params import ConvParams
from tremula.poplibs.poplin.product.convolution import (
    CONVS,
    acts_shape,
    calculate_weight_deltas,
    conv_samples,
    out_shape,
    reference_weight_deltas,
    transposed_and_flipped,
    weights_shape,
)
from tremula.poplibs.poplin.product.mat_mul import COMMON, ProductOptions, ones, random_values
from tremula.poplibs.popops import add_in_place, scaled_add_to
from tremula.poplibs.popops.reduction.reduce import reduce
from tremula.poplibs.poputil import create_broadcast_operand, replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register


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
    result = calculate_weight_deltas(graph, deltas, acts, params, sequence, name, **options)
    scaled_add_to(graph, weights, result, scale, sequence, f"{name}/apply")


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


# -- registry: samples, NumPy references, errors ---------------------------------------------------


def _bias_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (2, 3, 4, 5), (4, 7, 6), (3, 16, 8, 8)):
        yield Sample(
            (random_values(random, element, *shape), random_values(random, element, shape[1]))
        )


def _with_bias(acts: np.ndarray, biases: np.ndarray) -> np.ndarray:
    view = biases.reshape(1, -1, *(1,) * (acts.ndim - 2))
    return (acts.astype(np.float64) + view.astype(np.float64)).astype(acts.dtype)


def _bias_update(graph: Graph, biases: Tensor, deltas: Tensor, sequence: Sequence) -> None:
    convolution_bias_update(graph, deltas, biases, -0.25, sequence)


def _bias_update_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for sample in _bias_samples(element, random):
        yield Sample((sample.inputs[1], sample.inputs[0]))


def _updated_bias(biases: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    total = deltas.astype(np.float64).sum(axis=(0, *range(2, deltas.ndim)))
    return (biases.astype(np.float64) - 0.25 * total).astype(biases.dtype)


def _flip(graph: Graph, weights: Tensor, sequence: Sequence) -> Tensor:
    groups, n_out, n_in, *kernel = weights.shape
    out = graph.add_variable(
        weights.type, (groups, n_in, n_out, *kernel), "flipped", mapping="linear"
    )
    weights_transpose_chans_flip_xy(graph, weights, out, sequence)
    return out


def _weight_update(
    graph: Graph, weights: Tensor, deltas: Tensor, acts: Tensor, sequence: Sequence, *,
    params: ConvParams,
) -> None:  # fmt: skip
    convolution_weight_update(graph, deltas, weights, acts, params, -0.5, sequence)


def _reference_weight_update(
    weights: np.ndarray, deltas: np.ndarray, acts: np.ndarray, params: ConvParams
) -> np.ndarray:
    result = reference_weight_deltas(deltas.astype(np.float64), acts.astype(np.float64), params)
    return (weights.astype(np.float64) - 0.5 * result).astype(weights.dtype)


def _register_biases() -> None:
    register(Op(
        name="poplin.add_bias", function=add_bias, about="Biases added to every channel.",
        samples=_bias_samples, reference=_with_bias, is_in_place=True,
        errors=(ErrorCase(Sample(ones((2, 3, 4), (2,))), "expected [3]: one per channel"),
                ErrorCase(Sample(ones((2,), (2,))), "expected [b, channels, field…]")),
        **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_bias_update", function=_bias_update,
        about="Biases moved by the scaled sum of gradients.", samples=_bias_update_samples,
        reference=_updated_bias, is_in_place=True, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.weights_transpose_chans_flip_xy", function=_flip,
        about="Weights with channels exchanged and kernels reversed.",
        samples=lambda element, random: (
            Sample((random_values(random, element, *shape),)) for shape in ((2, 3, 4, 2, 3),)
        ),
        reference=lambda w: np.flip(w.swapaxes(1, 2), axis=tuple(range(3, w.ndim))), **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_weight_update", function=_weight_update,
        about="A convolution's weights moved by their scaled gradient.",
        samples=conv_samples((weights_shape, out_shape, acts_shape), CONVS[1:5]),
        is_in_place=True, reference=_reference_weight_update, **COMMON,
    ))  # fmt: skip


_register_biases()
