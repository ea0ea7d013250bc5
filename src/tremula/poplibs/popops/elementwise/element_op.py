"""What an element-wise operation is: one entry from which everything else about it is derived.

    ElementOp ──> popops.add, popops.add_in_place, popops.add_with_output     functions.py
              ──> expr.add, and its place in larger expressions               expr.py, fused.py
              ──> codelets: source, cycles, flops                             codelets.py, costs.py
              ──> registry entry: samples, reference, errors; docs/ops.md     register.py
              ──> stubs for editors and type checkers                         stubs.py

The operations that come with Tremula are the rows of operations.py; `register_element_op` adds one
from anywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tremula.base.types import BOOL, Type

IntegerRange = Callable[[Type, int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class VectorCost:
    """Worker slots for a vector of `width` elements, with loads and stores."""

    slots: int
    width: int = 1


CostTable = Mapping[str, VectorCost]


def costs(
    float_slots: int, float_width: int, half_slots: int, half_width: int, int_slots: int = 7
) -> dict[str, VectorCost]:
    """A cost table; integers of all sizes go one by one."""
    return {
        "FLOAT": VectorCost(float_slots, float_width),
        "HALF": VectorCost(half_slots, half_width),
        "INT": VectorCost(int_slots),
    }


def any_integer(element: Type, index: int) -> tuple[int, int] | None:  # noqa: ARG001
    """Samples of integers come from the whole range of their type."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementOp:
    """One element-wise operation.

    `tile` is what it does to one element on a tile: a plain function of numbers, or codelet source
    with {0}, {1}, {2} for the operands, {zero} for 0 of their type and {n_bits} for its size. Such
    source may call Python's builtins, `math`, `np` and the functions in `helpers`.
    """

    name: str
    about: str
    n_operands: int
    tile: str | Callable
    numpy: Callable[..., np.ndarray]  # the reference
    types: tuple[Type, ...]
    cost: CostTable  # by type name; a type that is not named costs as INT
    scalar_cost: CostTable = field(default_factory=dict)  # with one operand a scalar
    provenance: str = "derived"  # of the cost; "published" if PopLibs' estimators state it
    integer_tile: str | Callable = ""  # where integers need other source
    bool_tile: str | Callable = ""
    helpers: tuple[Callable, ...] = ()
    gives_bool: bool = False
    has_condition: bool = False  # the last operand is a bool, whatever the others are
    in_float: bool = False  # halves widen to float32 before, and round once after
    flops: int = 1  # of one element, where operands are floats
    # Samples for tests: where floats are defined and not too steep to compare, values where
    # rounding, ties and infinities go wrong first, and the range of integers.
    domain: tuple[float, float] = (-4.0, 4.0)
    edges: tuple[float, ...] = ()
    integers: IntegerRange = any_integer  # (type, operand) -> [low, high) or None for all
    tolerance: Mapping[str, float] = field(default_factory=dict)  # type name -> relative error

    @property
    def n_alike(self) -> int:
        """How many operands share one type: the first ones."""
        return self.n_operands - self.has_condition

    @property
    def functions(self) -> dict[str, Callable]:
        """Every function its source may call, by name."""
        called = (self.tile, self.integer_tile, self.bool_tile, *self.helpers)
        return {f.__name__: f for f in called if not isinstance(f, str)}

    def flops_of(self, element: Type) -> int:
        """Flops of one element."""
        return self.flops if element.is_floating else 0

    def cost_of(self, element: Type, has_scalar: bool = False) -> VectorCost:
        """Cycles of a vector of elements, with a scalar as second operand or without."""
        table = self.scalar_cost if has_scalar and self.scalar_cost else self.cost
        return table[element.name] if element.name in table else table["INT"]

    def source_for(self, element: Type) -> str:
        """Codelet source for operands of a type."""
        tile = self.tile
        if element is BOOL and self.bool_tile:
            tile = self.bool_tile
        elif not element.is_floating and self.integer_tile:
            tile = self.integer_tile
        if isinstance(tile, str):
            return tile
        operands = ", ".join(f"{{{i}}}" for i in range(self.n_operands))
        return f"{tile.__name__}({operands})"
