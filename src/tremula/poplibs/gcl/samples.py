"""Registry entries of gcl, on a single replica, where a collective is the identity.

The registry runs one replica; tests/poplibs/gcl/test_gcl.py tests several.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.types import Type
from tremula.poplibs.gcl.collectives import (
    TYPES,
    all_gather,
    all_reduce,
    broadcast,
    reduce_scatter,
)
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.slicing.codelets import dynamic_slice_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

_SHAPES = ((17,), (3, 4), (0, 2))


def _samples(**options: object) -> Callable:
    def make(type: Type, random: np.random.Generator) -> Iterator[Sample]:
        for shape in _SHAPES:
            yield Sample((random.integers(0, 9, shape).astype(type.dtype),), options)

    return make


def _with_operation(function: Callable) -> Callable:
    """The collective as the registry calls it, with the operation by keyword."""

    def call(graph: object, tensor: object, sequence: object, **options: object) -> object:
        return function(graph, tensor, options["operation"], sequence)

    return call


_UNKNOWN = ErrorCase(
    Sample((np.zeros(3, np.float32),), {"operation": "SUM"}), "does not know operation 'SUM'"
)
_ENTRIES = (
    ("all_reduce", _with_operation(all_reduce), "ADD, MEAN, MUL, MIN or MAX over all replicas.",
     {"operation": "ADD"}, lambda x, **_: x, (_UNKNOWN,)),
    ("reduce_scatter", _with_operation(reduce_scatter),
     "Part r of the tensor reduced over all replicas, for replica r.",
     {"operation": "ADD"}, lambda x, **_: x.ravel(), ()),
    ("all_gather", all_gather, "The tensors of all replicas.", {}, lambda x, **_: x[None], ()),
    ("broadcast", broadcast, "The tensor of one replica for all.", {}, lambda x, **_: x, ()),
)  # fmt: skip

for _name, _function, _about, _options, _reference, _errors in _ENTRIES:
    register(
        Op(
            name=f"gcl.{_name}",
            function=_function,
            about=_about,
            types=TYPES,
            samples=_samples(**_options),
            reference=_reference,
            codelets=(element_codelet, dynamic_slice_codelet),
            errors=_errors,
        )
    )
