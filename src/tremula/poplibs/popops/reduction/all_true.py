"""popops.all_true: one bool that says whether all elements are true."""

from collections.abc import Iterator

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.popops.reduction.reduce import reduce
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register


def all_true(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """A BOOL scalar, for If and the loops: the logical AND of all elements."""
    if tensor.type is not BOOL:
        raise PoplibsError(
            f"all_true needs a tensor of bool, got {tensor.type}.",
            source=user_source(),
            hint="compare first: popops.neq(graph, x, 0, sequence)",
        )
    dims = range(tensor.rank)
    return reduce(graph, tensor, dims, "LOGICAL_AND", sequence, name or "all_true")


def _samples(_: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((), (1,), (40,), (5, 0)):
        yield Sample((np.ones(shape, bool),))
    yield Sample((rng.random((6, 30)) < 0.99,))
    yield Sample((np.arange(300) != 299,))


register(
    Op(
        name="popops.all_true",
        function=all_true,
        about="one bool: are all elements true?",
        types=(BOOL,),
        samples=_samples,
        reference=lambda values: values.all(),
        codelets=(reduce_vertex,),
        errors=(ErrorCase(Sample((np.ones(3, np.int32),)), "all_true needs a tensor of bool"),),
    )
)
