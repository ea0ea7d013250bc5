"""Index arithmetic and checks on the host: flat indices, factored dimensions, halves, metadata."""

from collections.abc import Sequence

import numpy as np

from tremula.base.floats import QuarterFormat, pack_metadata
from tremula.base.source import user_source
from tremula.base.types import HALF, QUARTER_METADATA, Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.registry import PoplibsError


def flatten_index(shape: Sequence[int], indices: Sequence[int]) -> int:
    """The row-major position of an element."""
    return int(np.ravel_multi_index(tuple(indices), tuple(shape)))


def unflatten_index(shape: Sequence[int], index: int) -> list[int]:
    """The indices of a row-major position."""
    return [int(i) for i in np.unravel_index(index, tuple(shape))]


def factor_dims(tensor: Tensor, factors: Sequence[int], start_dim: int = 0) -> Tensor:
    """Split dimensions of size a·f into a and f, and move the f's to the end.

    Factors are of dimensions start_dim, start_dim + 1, …
    """
    n = len(factors)
    dims = range(start_dim, start_dim + n)
    for dim, factor in zip(dims, factors, strict=True):
        if factor < 1 or tensor.dim(dim) % factor:
            raise PoplibsError(
                f"dimension {dim} of size {tensor.dim(dim)} has no factor {factor}.",
                source=user_source(),
                hint="use factors that divide the sizes",
            )
    sizes = [part for d, f in zip(dims, factors, strict=True) for part in (tensor.dim(d) // f, f)]
    split = tensor.reshape_partial(start_dim, start_dim + n, sizes)
    inner = [start_dim + 2 * i + 1 for i in range(n)]
    outer = [start_dim + 2 * i for i in range(n)]
    before, after = range(start_dim), range(start_dim + 2 * n, split.rank)
    return split.dim_shuffle([*before, *outer, *inner, *after])


def unfactor_dims(tensor: Tensor, n_dims: int, start_dim: int = 0) -> Tensor:
    """The reverse of `factor_dims`."""
    if n_dims < 0 or start_dim < 0 or start_dim + 2 * n_dims > tensor.rank:
        raise PoplibsError(
            f"unfactor_dims: {n_dims} pairs of dimensions from {start_dim} on are not among the "
            f"{tensor.rank} of the tensor.",
            source=user_source(),
            hint="pass the number of factors that factor_dims had",
        )
    outer = range(start_dim, start_dim + n_dims)
    pairs = [d for o in outer for d in (o, o + n_dims)]
    rest = range(start_dim + 2 * n_dims, tensor.rank)
    joined = tensor.dim_shuffle([*range(start_dim), *pairs, *rest])
    for dim in outer:
        joined = joined.flatten(dim, dim + 2)
    return joined


def cast_to_device_half_value(value: float) -> float:
    """A number rounded to half, as the device would hold it."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def check_accuracy_when_cast(value: float, type: Type, tolerance: float) -> bool:
    """Whether a number survives a cast to a type within a relative tolerance."""
    if type is HALF and abs(value) > float(np.finfo(np.float16).max):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        there = float(np.asarray(value).astype(type.dtype))
    return abs(there - value) <= tolerance * abs(value)


def create_constant_metadata_tensor(
    graph: Graph, quarter_format: QuarterFormat, scale: int = 0, name: str = ""
) -> Tensor:
    """The constant metadata of 8-bit floats, on tile 0."""
    byte = pack_metadata(quarter_format, scale)
    return graph.add_constant(QUARTER_METADATA, [], byte, name or "metadata")


def create_variable_metadata_tensor(
    graph: Graph, quarter_format: QuarterFormat, scale: int = 0, name: str = ""
) -> Tensor:
    """Metadata of 8-bit floats that a program may change, on tile 0."""
    metadata = graph.add_variable(QUARTER_METADATA, [], name or "metadata", mapping=0)
    graph.set_initial_value(metadata, pack_metadata(quarter_format, scale))
    return metadata


def template_vertex(name: str, *parameters: object) -> str:
    """The name of a codelet: `name<parameters>`, types by their C++ spelling."""
    words = [str(p).lower() if isinstance(p, bool) else str(p) for p in parameters]
    return f"{name}<{','.join(words)}>" if words else name
