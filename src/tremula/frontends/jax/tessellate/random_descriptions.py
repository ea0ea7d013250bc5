"""TessellateIPU's descriptions of the vertices that draw random numbers and hold seeds."""

from collections.abc import Sequence

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from numpy.typing import DTypeLike

from tremula.frontends.jax.tessellate.equations import (
    IpuTileMapEquation,
    make_ipu_vertex_attributes,
    make_ipu_vertex_inputs,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_outputs,
)
from tremula.frontends.jax.tessellate.parameters import Attributes
from tremula.frontends.jax.tessellate.random import (
    SEED_WORDS,
    UNIFORM_TYPES,
    check_drawn_type,
    check_seeds,
    get_ipu_num_worker_contexts,
)


def ipu_set_hw_seeds_abstract_eval(seeds: ShapedArray) -> ShapedArray:
    """The seeds of one tile."""
    check_seeds(seeds.shape, seeds.dtype)
    return seeds


def ipu_get_hw_seeds_abstract_eval() -> ShapedArray:
    return ShapedArray((get_ipu_num_worker_contexts(), SEED_WORDS), np.dtype(np.uint32))


def ipu_set_hw_seeds_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that sets the seeds of a tile's workers."""
    del attributes
    both, names = {"seeds": ipu_set_hw_seeds_abstract_eval(*inavals)}, {"seeds"}
    return IpuTileMapEquation(
        p.name, "poplar_rt::SetHwSeedsSupervisor", list(tiles),
        make_ipu_vertex_inputs(both, names), make_ipu_vertex_outputs(both, names),
        perf_estimate=14 + 10 * get_ipu_num_worker_contexts(),
    )  # fmt: skip


def ipu_get_hw_seeds_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that reads the seeds of a tile's workers."""
    del inavals, attributes
    outputs = make_ipu_vertex_outputs({"seeds": ipu_get_hw_seeds_abstract_eval()})
    return IpuTileMapEquation(
        p.name, "poplar_rt::GetHwSeedsSupervisor", list(tiles), [], outputs,
        perf_estimate=14 + 7 * get_ipu_num_worker_contexts(),
    )  # fmt: skip


def ipu_random_uniform_abstract_eval(
    size: int, dtype: DTypeLike, offset: float, scale: float
) -> ShapedArray:
    del offset, scale
    return ShapedArray((size,), check_drawn_type("tile_random_uniform", dtype, UNIFORM_TYPES))


def ipu_random_normal_abstract_eval(
    size: int, dtype: DTypeLike, mean: float, stddev: float
) -> ShapedArray:
    del mean, stddev
    return ShapedArray((size,), check_drawn_type("tile_random_normal", dtype, UNIFORM_TYPES[:2]))


def _drawn(
    p: Primitive, tiles: Sequence[int], vertex: str, outaval: ShapedArray, **attributes: float
) -> IpuTileMapEquation:
    whole, others = make_ipu_vertex_attributes(**attributes)
    vname = make_ipu_vertex_name_templated(vertex, outaval.dtype)
    outputs = make_ipu_vertex_outputs({"out": outaval})
    return IpuTileMapEquation(p.name, vname, list(tiles), [], outputs, whole, others)


def ipu_random_uniform_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that draws uniform numbers."""
    del inavals
    values = dict(attributes or {})
    options = {name: values[name] for name in ("offset", "scale")}
    outaval = ipu_random_uniform_abstract_eval(int(values["size"]), values["dtype"], **options)
    return _drawn(p, tiles, "poprand::Uniform", outaval, **options)


def ipu_random_normal_translation_ipu(
    p: Primitive,
    tiles: Sequence[int],
    inavals: Sequence[ShapedArray],
    attributes: Attributes | None = None,
) -> IpuTileMapEquation:
    """The vertex that draws normally distributed numbers."""
    del inavals
    values = dict(attributes or {})
    mean, deviation = float(values["mean"]), float(values["stddev"])
    size, dtype = int(values["size"]), values["dtype"]
    outaval = ipu_random_normal_abstract_eval(size, dtype, mean, deviation)
    return _drawn(p, tiles, "poprand::Normal", outaval, mean=mean, stdDev=deviation)
