"""How far a result in floats may be from the plain one: a multiple of what that moves by itself."""

import math
from collections.abc import Callable

from torch import Tensor

from tools.fuzz.case import CheckFailure, SetAside

# Noise that rounding may cause, and how much of its effect is allowed: a step has many roundings.
# Products of 8-bit floats are halves; few operands are so near to a middle that they move.
NOISE = {"float": 3e-7, "half": 1e-3, "float8": 3e-4}
TIMES = 30
TOO_MUCH = {
    "float": 2e-2,
    "half": 0.3,
    "float8": 0.3,
}  # movement of the plain result, from which nothing follows
LEAST = {"float": 1e-5, "half": 4e-3, "float8": 4e-3}
N_DRAWS = 8  # of noise, before a difference counts
IN_HALF = N_DRAWS + 1  # a draw in which halves are computed in half by PyTorch itself

Plain = Callable[[float, int], list[Tensor]]  # plain results for a share of noise and a seed of it


class Judge:
    """Compares results with plain ones. A difference is judged again by several draws of noise.

    One draw can leave a result that rounding moves far, but most cases need no more. Draw 0 moves
    inputs, weights and their gradients; others also what is between layers.
    """

    def __init__(self, plain_results: Plain, kind: str, n_outputs: int):
        self._plain, self._kind, self._n_outputs = plain_results, kind, n_outputs
        self._expected = plain_results(0.0, 0)
        self._tolerances = self._tolerances_of_draw(0)

    def _tolerances_of_draw(self, draw: int) -> list[float]:
        moved = self._plain(NOISE[self._kind], draw)
        return tolerances_of(self._expected, moved, self._kind, self._n_outputs)

    def compare(self, results: list[Tensor], where: str, first: int = 0) -> None:
        """A CheckFailure if results (from this one on) are off by more than any draw explains."""
        try:
            compare(results, self._expected[first:], self._tolerances[first:], where)
        except CheckFailure:
            draws = [self._tolerances_of_draw(1 + draw) for draw in range(N_DRAWS)]
            draws.append(self._tolerances)
            if self._kind == "half":
                draws.append(self._tolerances_of_draw(IN_HALF))
            self._tolerances = [max(of_result) for of_result in zip(*draws, strict=True)]
            compare(results, self._expected[first:], self._tolerances[first:], where)


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
