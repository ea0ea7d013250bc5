"""Pooling and its gradient: MAX, AVG and SUM over windows of fields of any rank.

Activations are [batch, channels, field…]. Tiles work on vectors of neighbouring channels if these
lie side by side in memory, as convolutions leave them; else on single channels.
"""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, UNSIGNED_SHORT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs import popops
from tremula.poplibs.popnn.checks import check_float, check_rank, check_same_shape
from tremula.poplibs.popnn.pooling.codelets import PoolStep, pool_codelet
from tremula.poplibs.popnn.pooling.geometry import PoolingType, PoolParams, Shape
from tremula.poplibs.popnn.pooling.plan import PoolKey, PoolPlan, choose_split, plan_pool
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.poputil import replayed
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

GOOD_ENOUGH = 1.1  # groups of channels, whose memory is less fragmented, may cost this much more
LARGEST_FIELD = 1 << 24  # places are found as float32


@replayed
def pool(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "pool", *, params: PoolParams
) -> Tensor:
    """The maximum, average or sum of every window; averages ignore padding."""
    check_float("pool", x)
    check_rank("pool", x, 3, "[batch, channels, field…]")
    params = params.complete(x.shape[2:])
    step = PoolStep.MAX if params.kind is PoolingType.MAX else PoolStep.SUM
    return _pool(graph, step, params, x.shape, x, {}, sequence, name)


@replayed
def pool_input_gradient(
    graph: Graph, x: Tensor, pooled: Tensor, pooled_gradient: Tensor, sequence: Sequence,
    name: str = "pool_gradient", *, params: PoolParams, use_scaled_gradient: bool = False,
) -> Tensor:  # fmt: skip
    """The gradient of pool's input.

    A maximum passes its gradient to every input that equals it; `use_scaled_gradient` divides it
    among them. Averages and sums read neither x nor pooled.
    """
    check_float("pool_input_gradient", x)
    check_rank("pool_input_gradient", x, 3, "[batch, channels, field…]")
    check_same_shape("pool_input_gradient", pooled, pooled_gradient)
    params = params.complete(x.shape[2:])
    _check_pooled(x, pooled, params)
    if params.kind is not PoolingType.MAX:
        return _pool(
            graph, PoolStep.SUM, params, x.shape, pooled_gradient, {}, sequence, name, True
        )
    if use_scaled_gradient:
        counts = _pool(
            graph, PoolStep.COUNT_MAX, params, x.shape, x, {"pooled": pooled}, sequence,
            f"{name}/count",
        )  # fmt: skip
        pooled_gradient = popops.div(graph, pooled_gradient, counts, sequence, name=f"{name}/share")
    others = {"acts": x, "pooled": pooled}
    step = PoolStep.MAX_GRADIENT
    return _pool(graph, step, params, x.shape, pooled_gradient, others, sequence, name, True)


@replayed
def pool_places(
    graph: Graph, x: Tensor, pooled: Tensor, sequence: Sequence, name: str = "pool_places",
    *, params: PoolParams,
) -> Tensor:  # fmt: skip
    """INT: where in the field the first maximum of every window is, counted row by row."""
    check_float("pool_places", x)
    check_rank("pool_places", x, 3, "[batch, channels, field…]")
    params = params.complete(x.shape[2:])
    _check_pooled(x, pooled, params)
    if params.kind is not PoolingType.MAX or math.prod(x.shape[2:]) > LARGEST_FIELD:
        kind, field = PoolingType(params.kind).value, list(x.shape[2:])
        raise PoplibsError(
            f"pool_places got a {kind} pooling of a field {field}: only a "
            f"maximum has a place, and a field at most {LARGEST_FIELD} elements.",
            source=user_source(),
            hint="use a maximum of a smaller field",
        )
    others = {"pooled": pooled}
    return _pool(graph, PoolStep.PLACE_MAX, params, x.shape, x, others, sequence, name)


@replayed
def pool_gradient_by_places(
    graph: Graph, pooled_gradient: Tensor, places: Tensor, sequence: Sequence,
    name: str = "pool_gradient", *, params: PoolParams, field: Shape,
) -> Tensor:  # fmt: skip
    """The gradient of a maximum's input, of shape `field`: each window's goes to its one place."""
    check_float("pool_gradient_by_places", pooled_gradient)
    params = params.complete(tuple(field))
    shape = (*pooled_gradient.shape[:2], *params.out_field(tuple(field)))
    if places.type is not INT or not places.shape == pooled_gradient.shape == shape:
        raise PoplibsError(
            f"pool_gradient_by_places needs the places of every window as int {list(shape)}, got "
            f"{places.type} {list(places.shape)}, and gradients {list(pooled_gradient.shape)}.",
            source=user_source(),
            hint="give what pool_places returned, and a gradient of its shape",
        )
    in_shape = (*shape[:2], *field)
    return _pool(
        graph, PoolStep.PLACE_GRADIENT, params, in_shape, pooled_gradient, {"chosen": places},
        sequence, name, True,
    )  # fmt: skip


def _check_pooled(x: Tensor, pooled: Tensor, params: PoolParams) -> None:
    expected = (*x.shape[:2], *params.out_field(x.shape[2:]))
    if pooled.shape != expected or pooled.type is not x.type:
        raise PoplibsError(
            f"pooling {x.type} {list(x.shape)} gives {list(expected)}, but the pooled tensor is "
            f"{pooled.type} {list(pooled.shape)}.",
            source=user_source(),
            hint="give the tensor that pool returned, and its gradient",
        )


def _pool(  # noqa: PLR0917 - one call site per kind of pooling
    graph: Graph, step: PoolStep, params: PoolParams, in_shape: Shape, src: Tensor,
    others: dict[str, Tensor], sequence: Sequence, name: str, is_backward: bool = False,
) -> Tensor:  # fmt: skip
    """Read `src` at the taps of every window (or, backward, of every input), write a new tensor."""
    n_batch, n_channels, *field = in_shape
    dst_field = tuple(field) if is_backward else params.out_field(tuple(field))
    dst_type = INT if step is PoolStep.PLACE_MAX else src.type
    if math.prod(in_shape) == 0:
        return graph.add_variable(dst_type, [n_batch, n_channels, *dst_field], name)
    target = graph.target
    n_near = _n_side_by_side(src)
    keys = [
        PoolKey(
            params, tuple(field), n_channels // n * n_batch, n, n_near, is_backward, src.type,
            target.n_tiles, target.chip,
        )
        for n in range(1, n_near + 1)
        if n_near % n == 0
    ]  # fmt: skip
    enough = GOOD_ENOUGH * min(choose_split(k).cycles for k in keys)
    key = next(k for k in reversed(keys) if choose_split(k).cycles <= enough)
    plan, n_each = plan_pool(key), key.n_channels
    dst = graph.add_variable(dst_type, [n_channels // n_each, n_batch, *dst_field, n_each], name)
    tiles = np.arange(plan.n_used)
    owner = np.repeat(tiles, np.diff(plan.dst_start))
    order = np.argsort(plan.dst_begin, kind="stable")
    graph.set_tile_mapping(dst, TileMapping(
        plan.dst_begin[order], plan.dst_end[order], owner[order], target.n_tiles
    ))  # fmt: skip
    fields = _tables(graph, step, plan, name, n_each, math.prod(field)) | {"n_channels": n_each}
    if step is PoolStep.SUM:
        fields["by_src"] = is_backward
    dst_rows = (plan.dst_begin, plan.dst_end, plan.dst_start)
    src_rows = (plan.src_begin, plan.src_end, plan.src_start)
    fields["dst"] = Slices(dst.flatten(), *dst_rows)
    fields["src"] = Slices(_in_rows(src, n_each), *src_rows)
    for field_name, tensor in others.items():
        rows = dst_rows if field_name in step.dst_row_fields else src_rows
        fields[field_name] = Slices(_in_rows(tensor, n_each), *rows)
    codelet = pool_codelet(step, src.type, _index_type(plan))
    run_vertices(graph, codelet, fields, tiles, sequence, name)
    return _from_rows(dst)


def _tables(
    graph: Graph, step: PoolStep, plan: PoolPlan, name: str, n_each: int, n_field: int
) -> dict[str, object]:
    """Strides, and the tables of every vertex as constants on its tile."""
    index = _index_type(plan)
    tables = [("joined", index, plan.join_start, plan.joined),
              ("taps", index, plan.taps_start, plan.taps)]  # fmt: skip
    fields: dict[str, object] = {"dst_stride": plan.dst_stride, "src_stride": plan.src_stride}
    if step is PoolStep.SUM:
        tables.append(("shares", FLOAT, plan.share_start, plan.shares))
    if step.places_of:
        start, begin = (
            (plan.src_start, plan.src_begin)
            if step.places_of == "src"
            else (plan.dst_start, plan.dst_begin)
        )
        tables.append(("places", INT, start, begin // n_each % n_field))
    n_tiles = graph.target.n_tiles
    for field, type, start, values in tables:
        table = graph.add_constant(
            type, [len(values)], values.astype(type.dtype), f"{name}/{field}"
        )
        mapping = TileMapping(start[:-1], start[1:], np.arange(plan.n_used), n_tiles)
        graph.set_tile_mapping(table, mapping)
        fields[field] = Slices(table, start[:-1], start[1:])
    return fields


def _index_type(plan: PoolPlan) -> Type:
    largest = max(int(plan.joined.max(initial=0)), int(plan.taps.max(initial=0)))
    return UNSIGNED_SHORT if largest <= np.iinfo(np.uint16).max else UNSIGNED_INT


def _n_side_by_side(x: Tensor) -> int:
    """How many channels are neighbours in memory."""
    runs = x[(0, slice(None), *(0,) * (x.rank - 2))].runs()
    if (runs.stride[runs.count > 1] != 1).any():
        return 1
    return math.gcd(*runs.count.tolist())


def _in_rows(x: Tensor, n_each: int) -> Tensor:
    """Activations as a flat [groups, batch, field…, channels of a group]."""
    split = x.reshape_partial(1, 2, [x.shape[1] // n_each, n_each])
    return split.dim_roll(2, split.rank - 1).dim_roll(1, 0).flatten()


def _from_rows(rows: Tensor) -> Tensor:
    """[groups, batch, field…, channels of a group] as [batch, channels, field…]."""
    return rows.dim_roll(rows.rank - 1, 1).dim_roll(2, 0).flatten(1, 3)


# -- registry: samples and NumPy references, a kernel element at a time ----------------------------


class _Windows:
    """Padded inputs and, for each kernel element, the view of what it covers in every window."""

    def __init__(self, params: PoolParams, field: tuple[int, ...]):
        self.params = params.complete(field)
        self.field, self.out = field, self.params.out_field(field)
        lower, upper = self.params.padding_lower, self.params.padding_upper
        self.pads = [(max(low, 0), max(high, 0)) for low, high in zip(lower, upper, strict=True)]
        self.skip = [max(-low, 0) for low in lower]

    def padded(self, x: np.ndarray, value: float) -> np.ndarray:
        room = [(0, 0), (0, 0), *self.pads]
        return np.pad(x.astype(np.float64), room, constant_values=value)

    def elements(self) -> Iterator[tuple[slice, ...]]:
        """Indices of a padded array, one per kernel element."""
        strides, out = self.params.stride, self.out
        apart = zip(self.params.kernel, self.params.dilation, strict=True)
        for offsets in product(*(range(0, k * a, a) for k, a in apart)):
            yield (slice(None), slice(None), *(
                slice(skip + k, skip + k + (n - 1) * s + 1, s)
                for skip, k, n, s in zip(self.skip, offsets, out, strides, strict=True)
            ))  # fmt: skip

    def counts(self) -> np.ndarray:
        there = self.padded(np.ones((1, 1, *self.field)), 0)
        return sum(there[at] for at in self.elements())  # pyright: ignore[reportReturnType]

    def unpadded(self, x: np.ndarray) -> np.ndarray:
        return x[(slice(None), slice(None), *(
            slice(low, low + n) for (low, _), n in zip(self.pads, self.field, strict=True)
        ))]  # fmt: skip


def _reference(x: np.ndarray, *, params: PoolParams) -> np.ndarray:
    windows = _Windows(params, x.shape[2:])
    is_max = windows.params.kind is PoolingType.MAX
    padded = windows.padded(x, -np.inf if is_max else 0)
    parts = np.stack([padded[at] for at in windows.elements()])
    result = parts.max(axis=0) if is_max else parts.sum(axis=0)
    if windows.params.kind is PoolingType.AVG:
        result = result / windows.counts()
    return result.astype(x.dtype)


def _gradient_reference(
    x: np.ndarray, pooled: np.ndarray, gradient: np.ndarray, *, params: PoolParams,
    use_scaled_gradient: bool = False,
) -> np.ndarray:  # fmt: skip
    windows = _Windows(params, x.shape[2:])
    g = gradient.astype(np.float64)
    padded = windows.padded(x, np.nan)
    is_max = windows.params.kind is PoolingType.MAX
    if windows.params.kind is PoolingType.AVG:
        g = g / windows.counts()
    if is_max and use_scaled_gradient:
        n_equal = sum((padded[at] == pooled).astype(np.float64) for at in windows.elements())
        g = (g / n_equal).astype(x.dtype).astype(np.float64)
    result = np.zeros_like(padded)
    for at in windows.elements():
        result[at] += g * (padded[at] == pooled) if is_max else g
    return windows.unpadded(result).astype(x.dtype)


def _places_reference(x: np.ndarray, pooled: np.ndarray, *, params: PoolParams) -> np.ndarray:
    windows = _Windows(params, x.shape[2:])
    numbers = np.arange(np.prod(windows.field)).reshape((1, 1, *windows.field))
    values, places = windows.padded(x, np.nan), windows.padded(numbers, -1)
    result = np.full(pooled.shape, -1.0)
    for at in windows.elements():
        result = np.where((result < 0) & (values[at] == pooled), places[at], result)
    return result.astype(np.int32)


def _by_places_reference(
    gradient: np.ndarray, places: np.ndarray, *, params: PoolParams, field: tuple[int, ...]
) -> np.ndarray:
    del params
    flat = np.zeros((*gradient.shape[:2], int(np.prod(field))))
    at = places.reshape((*places.shape[:2], -1))
    b, c = (np.arange(n) for n in at.shape[:2])
    np.add.at(flat, (b[:, None, None], c[:, None], at), gradient.reshape(at.shape))
    return flat.reshape((*gradient.shape[:2], *field)).astype(gradient.dtype)


_CASES = (
    ((2, 3, 6, 7), PoolParams("MAX", (2, 3), (2, 2))),
    ((1, 4, 5, 5), PoolParams("AVG", (3, 3), (2, 2), (1, 1), (1, 1))),
    ((2, 1, 9), PoolParams("SUM", (4,))),
    ((1, 2, 4, 3, 5), PoolParams("MAX", (2, 2, 3), (1, 2, 2), (0, 1, 1), (1, 0, 1))),
    ((3, 2, 7, 7), PoolParams("AVG", (7, 7))),
    ((1, 2, 8, 8), PoolParams("MAX", (2, 2), (3, 3), (-1, 0), (0, -2))),
    ((2, 2, 7, 6), PoolParams("MAX", (3, 2), (1, 2), (1, 0), (0, 1), (2, 3))),
)


def _acts(rng: np.random.Generator, element: Type, shape: tuple[int, ...]) -> np.ndarray:
    """Few distinct values, so that maxima occur more than once."""
    return (rng.integers(-6, 7, shape) / 2).astype(element.dtype)


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _CASES:
        yield Sample((_acts(rng, element, shape),), {"params": params})
    yield Sample((np.zeros((0, 3, 4), element.dtype),), {"params": PoolParams("MAX", (2,))})


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for number, (shape, params) in enumerate(_CASES):
        x = _acts(rng, element, shape)
        pooled = _reference(x, params=params)
        gradient = rng.normal(0, 1, pooled.shape).astype(element.dtype)
        options = {"params": params} | ({"use_scaled_gradient": True} if number == 0 else {})
        yield Sample((x, pooled, gradient), options)


def _place_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _MAX_CASES:
        x = _acts(rng, element, shape)
        yield Sample((x, _reference(x, params=params)), {"params": params})


def _by_places_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _MAX_CASES:
        x = _acts(rng, element, shape)
        pooled = _reference(x, params=params)
        places = _places_reference(x, pooled, params=params)
        gradient = rng.normal(0, 1, pooled.shape).astype(element.dtype)
        yield Sample((gradient, places), {"params": params, "field": shape[2:]})


_MAX_CASES = [case for case in _CASES if case[1].kind == "MAX"]
_X = np.ones((1, 2, 4, 4), np.float32)


def _error_case(params: PoolParams, expected: str, x: np.ndarray = _X) -> ErrorCase:
    return ErrorCase(Sample((x,), {"params": params}), expected)


register(Op(
    name="popnn.pool", function=pool,
    about="The maximum, average or sum of every window of a field.", types=(FLOAT, HALF),
    samples=_samples, reference=_reference, codelets=(pool_codelet,),
    errors=(
        _error_case(PoolParams("MEAN", (2, 2)), "there is no pooling 'MEAN'"),
        _error_case(PoolParams("MAX", (2,)), "pooling of a field [4, 4] got kernel [2]"),
        _error_case(PoolParams("MAX", (5, 5)), "has no window"),
        _error_case(PoolParams("MAX", (2, 2), (), (2, 0)), "a window of padding only"),
        _error_case(PoolParams("MAX", (2, 0)), "pooling got kernel [2, 0]"),
        _error_case(PoolParams("MAX", (2,)), "needs a tensor [batch, channels, field…]", _X[0, 0]),
        _error_case(PoolParams("MAX", (2, 2)), "does not work on int", _X.astype(np.int32)),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
))  # fmt: skip
register(Op(
    name="popnn.pool_input_gradient", function=pool_input_gradient,
    about="The gradient of pool's input.", types=(FLOAT, HALF), samples=_gradient_samples,
    reference=_gradient_reference, codelets=(pool_codelet, element_codelet),
    errors=(
        ErrorCase(
            Sample((_X, _X, _X), {"params": PoolParams("MAX", (2, 2))}),
            "gives [1, 2, 3, 3], but the pooled tensor is float [1, 2, 4, 4]",
        ),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 4e-3},
))  # fmt: skip
register(Op(
    name="popnn.pool_places", function=pool_places,
    about="Where in the field the first maximum of every window is, counted row by row.",
    types=(FLOAT, HALF), samples=_place_samples, reference=_places_reference,
    codelets=(pool_codelet,),
    errors=(
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("MAX", (2, 2))}),
            "gives [1, 2, 3, 3], but the pooled tensor is float [1, 2, 4, 4]",
        ),
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("AVG", (1, 1))}), "only a maximum has a place"
        ),
    ),
))  # fmt: skip
register(Op(
    name="popnn.pool_gradient_by_places", function=pool_gradient_by_places,
    about="The gradient of a maximum's input, all of it to the place that pool_places found.",
    types=(FLOAT, HALF), samples=_by_places_samples, reference=_by_places_reference,
    codelets=(pool_codelet,),
    errors=(
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("MAX", (1, 1)), "field": (4, 4)}),
            "needs the places of every window as int [1, 2, 4, 4], got float [1, 2, 4, 4]",
        ),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 4e-3},
))  # fmt: skip
