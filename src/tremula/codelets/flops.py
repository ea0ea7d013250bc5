"""How a codelet states its flops, and the most a tile can do on the vector unit.

A codelet has a static method `flops(v, chip)` beside `cycles(v, chip)`: a column of floating-point
operations, one number per vertex. docs/what-is-a-cycle.md says what counts. Here are the common
ones; `flops = no_flops` states that there are none.
"""

from typing import TYPE_CHECKING

import numpy as np

from tremula.base.types import HALF, Type
from tremula.codelets.spec import CodeletSpec, CostView

if TYPE_CHECKING:
    from tremula.hardware import Chip


def _none(v: CostView, chip: "Chip") -> np.ndarray:  # noqa: ARG001
    return np.zeros(v.n_rows, np.int64)


no_flops = staticmethod(_none)


def flops_per_element(field: str, n: int, type: Type | None = None) -> staticmethod:
    """`n` per element of a field; none if it computes in a `type` that is not a float."""
    if not n or (type is not None and not type.is_floating):
        return no_flops

    def flops(v: CostView, chip: "Chip") -> np.ndarray:  # noqa: ARG001
        return n * v.sizes[field]

    return staticmethod(flops)


def vector_flops_per_cycle(spec: CodeletSpec, chip: "Chip") -> int:
    """Of a tile's vector unit: its lanes hold the narrowest floats that a codelet reads."""
    floats = [f for f in spec.fields if f.is_edge and f.type.is_floating]
    read = [f for f in floats if f.is_read] or floats
    is_narrow = any(f.type.n_bytes <= HALF.n_bytes for f in read)
    return chip.flops_per_cycle_vector_half if is_narrow else chip.flops_per_cycle_vector_float
