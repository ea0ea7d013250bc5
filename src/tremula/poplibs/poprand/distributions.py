"""Tensors of random numbers: uniform, log-uniform, normal, truncated normal, Bernoulli.

A reference tensor gives the result's shape and layout. With a seed tensor the values follow from
the seed, its modifier and the layout; the generators then continue as if nothing had been drawn.
Without one they come from the state the workers are in.
"""

# ruff: noqa: PLR0913, PLR0917 - the signatures are PopLibs'
import math
from collections.abc import Mapping

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.poprand.codelets import (
    bernoulli_codelet,
    log_uniform_codelet,
    normal_codelet,
    truncated_normal_codelet,
    uniform_codelet,
    uniform_int_codelet,
)
from tremula.poplibs.poprand.seeding import check_seed, with_seed
from tremula.poplibs.poputil import clone_in_order, in_memory_order, tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import PoplibsError

INT_LIMITS = (-(2**31), 2**31 - 1)
LEAST_TRIANGLES = 1e-6  # share of truncated normals that may come from the triangle


def uniform(
    graph: Graph, seed: Tensor | None, seed_modifier: int, reference: Tensor, type: Type | str,
    min_value: float, max_value: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Numbers of [min_value, max_value], all equally likely; FLOAT, HALF, or INT."""
    type = _checked_type("uniform", type, (FLOAT, HALF, INT))
    _check_bounds("uniform", min_value, max_value)
    if type is INT:
        low, high = _whole_bounds(min_value, max_value)
        state = {"low": low, "n_values": high - low + 1}
        codelet = uniform_int_codelet(type)
    else:
        state = {"low": min_value, "width": max_value - min_value}
        codelet = uniform_codelet(type)
    out = new_like(graph, reference, type, name or "uniform")
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "uniform")
    return out


def log_uniform(
    graph: Graph, seed: Tensor | None, seed_modifier: int, reference: Tensor, type: Type | str,
    min_value: float, max_value: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Numbers of [min_value, max_value] whose logarithm is uniform; FLOAT, HALF, or INT."""
    type = _checked_type("log_uniform", type, (FLOAT, HALF, INT))
    _check_bounds("log_uniform", min_value, max_value)
    if min_value <= 0:
        raise PoplibsError(
            f"log_uniform needs a min_value above 0, got {min_value}.",
            source=user_source(),
            hint="only positive numbers have a logarithm",
        )
    log_low = math.log(min_value)
    state = {
        "log_low": log_low, "log_width": math.log(max_value) - log_low, "low": min_value,
        "high": max_value,
    }  # fmt: skip
    out = new_like(graph, reference, type, name or "logUniform")
    codelet = log_uniform_codelet(type)
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "logUniform")
    return out


def normal(
    graph: Graph, seed: Tensor | None, seed_modifier: int, reference: Tensor, type: Type | str,
    mean: float, std_dev: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Normal numbers, never more than 6 deviations away; FLOAT or HALF."""
    type = _checked_type("normal", type, (FLOAT, HALF))
    _check_deviation("normal", std_dev)
    out = new_like(graph, reference, type, name or "normal")
    state = {"mean": mean, "std_dev": std_dev}
    codelet = normal_codelet(type)
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "normal")
    return out


def truncated_normal(
    graph: Graph, seed: Tensor | None, seed_modifier: int, reference: Tensor, type: Type | str,
    mean: float, std_dev: float, alpha: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Normal numbers within alpha deviations of the mean; FLOAT or HALF.

    Numbers outside are drawn again; of those still outside when that would last too long, one in a
    million, a triangular distribution takes the place.
    """
    type = _checked_type("truncated_normal", type, (FLOAT, HALF))
    _check_deviation("truncated_normal", std_dev)
    if not alpha > 0:
        raise PoplibsError(
            f"truncated_normal needs an alpha above 0, got {alpha}.",
            source=user_source(),
            hint="give the deviations at which to cut off, 2 say",
        )
    out = new_like(graph, reference, type, name or "truncatedNormal")
    state = {"mean": mean, "std_dev": std_dev, "alpha": alpha, "n_tries": _n_tries(alpha)}
    codelet = truncated_normal_codelet(type)
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "truncatedNormal")
    return out


def bernoulli(
    graph: Graph, seed: Tensor | None, seed_modifier: int, reference: Tensor, type: Type | str,
    probability: float, sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """Ones with a probability, else zeros; FLOAT, HALF, or INT."""
    type = _checked_type("bernoulli", type, (FLOAT, HALF, INT))
    check_probability("bernoulli", probability)
    out = new_like(graph, reference, type, name or "bernoulli")
    state = {"probability": probability, "one": 1.0}
    codelet = bernoulli_codelet(type)
    fill(graph, seed, seed_modifier, out, codelet, state, sequence, name or "bernoulli")
    return out


# -- what they share -------------------------------------------------------------------------------


def new_like(graph: Graph, reference: Tensor, type: Type, name: str) -> Tensor:
    """A tensor of the reference's shape and layout; linear if the reference repeats elements."""
    if reference.contains_aliases:
        return graph.add_variable(type, reference.shape, name, mapping="linear")
    return clone_in_order(graph, reference, name, type=type)


def fill(
    graph: Graph, seed: Tensor | None, seed_modifier: int, out: Tensor, codelet: type,
    state: Mapping[str, float], sequence: Sequence, name: str, source: Tensor | None = None,
) -> None:  # fmt: skip
    """One vertex per tile for its parts of `out`, and of `source` as field x where there is one."""
    check_seed(seed, seed_modifier)
    if out.n_elems == 0:
        return
    flat, (x,) = in_memory_order(out, [out if source is None else source])
    regions = tile_regions(graph, flat)
    tiles, first = np.unique(regions.tile, return_index=True)
    start = np.append(first, len(regions.tile))
    fields: dict[str, object] = {"out": Slices(flat, regions.begin, regions.end, start)}
    if source is not None:
        fields["x"] = Slices(x, regions.begin, regions.end, start)

    def generate() -> None:
        run_vertices(graph, codelet, {**fields, **state}, tiles, sequence, name)

    with_seed(graph, seed, seed_modifier, tiles, sequence, name, generate)


def _checked_type(what: str, type: Type | str, known: tuple[Type, ...]) -> Type:
    type = as_type(type)
    if type not in known:
        raise PoplibsError(
            f"{what} does not make {type}, only {', '.join(str(t) for t in known)}.",
            source=user_source(),
            hint="make one of those and cast it",
        )
    return type


def _check_bounds(what: str, low: float, high: float) -> None:
    if not (low <= high and math.isfinite(low) and math.isfinite(high)):
        raise PoplibsError(
            f"{what} needs min_value <= max_value, both finite; got {low} and {high}.",
            source=user_source(),
            hint="give the smaller one first",
        )


def _whole_bounds(low: float, high: float) -> tuple[int, int]:
    """The integers within the bounds: both ends included."""
    first, last = math.ceil(low), math.floor(high)
    if first > last or first < INT_LIMITS[0] or last > INT_LIMITS[1]:
        raise PoplibsError(
            f"uniform of int has nothing to choose from between {low} and {high}.",
            source=user_source(),
            hint=f"give bounds with an integer between them, of {INT_LIMITS[0]} to {INT_LIMITS[1]}",
        )
    return first, last


def _check_deviation(what: str, std_dev: float) -> None:
    if not std_dev >= 0:
        raise PoplibsError(
            f"{what} needs a std_dev of 0 or more, got {std_dev}.",
            source=user_source(),
            hint="give a positive deviation",
        )


def check_probability(what: str, probability: float) -> None:
    if not 0 <= probability <= 1:
        raise PoplibsError(
            f"{what} needs a probability of 0 to 1, got {probability}.",
            source=user_source(),
            hint="give a share, 0.9 say",
        )


def _n_tries(alpha: float) -> int:
    """Draws after which at most LEAST_TRIANGLES of the numbers are still outside."""
    share_outside = math.erfc(alpha / math.sqrt(2))
    if share_outside < LEAST_TRIANGLES:
        return 1
    return math.ceil(math.log(LEAST_TRIANGLES) / math.log(share_outside))
