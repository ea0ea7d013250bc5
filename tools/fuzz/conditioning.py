"""How far a result in floats may be from the plain one: a multiple of what that moves by itself."""

import math

from torch import Tensor

from tools.fuzz.case import CheckFailure, SetAside

# Noise that rounding may cause, and how much of its effect is allowed: a step has many roundings.
NOISE = {"float": 3e-7, "half": 1e-3}
TIMES = 30
TOO_MUCH = {"float": 2e-2, "half": 0.3}  # movement of the plain result, from which nothing follows
LEAST = {"float": 1e-5, "half": 4e-3}


def tolerances_of(
    expected: list[Tensor], moved: list[Tensor], kind: str, n_outputs: int
) -> list[float]:
    """How far each result may be off; outputs come first, then weights.

    A weight that moves by itself is not compared: Adam divides what rounding leaves of a zero
    gradient by itself. If an output or most weights do, the case is set aside.
    """
    tolerances = []
    for one, other in zip(expected, moved, strict=True):
        if not one.isfinite().all():
            raise SetAside("the plain result is not finite")
        scale = float(one.abs().max()) + 1e-3
        movement = float((one - other).abs().max()) / scale
        is_decisive = movement * TIMES <= TOO_MUCH[kind]
        tolerances.append(scale * (movement * TIMES + LEAST[kind]) if is_decisive else math.inf)
    if math.inf in tolerances[:n_outputs] or tolerances.count(math.inf) * 2 > len(tolerances):
        raise SetAside("the plain result moves by itself")
    return tolerances


def compare(
    results: list[Tensor], expected: list[Tensor], tolerances: list[float], where: str
) -> None:
    """A CheckFailure if a result is off by more than its tolerance."""
    if len(results) != len(expected):
        raise CheckFailure(f"wrong number of results on {where}", f"{len(results)}")
    for number, (got, wanted, most) in enumerate(zip(results, expected, tolerances, strict=True)):
        if got.shape != wanted.shape:
            raise CheckFailure(f"wrong shape on {where}", f"{number}: {got.shape}, {wanted.shape}")
        error = float((got.double() - wanted).abs().max()) if got.numel() else 0.0
        if not error <= most:
            raise CheckFailure(
                f"wrong values on {where}", f"result {number}: off by {error}, allowed {most}"
            )
