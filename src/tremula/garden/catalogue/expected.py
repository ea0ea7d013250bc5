"""What an application must reach: `>= 0.95`, `<= 1e-3`, `== 3`, `0.3 .. 0.4`."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BOUND = re.compile(rf"(>=|<=|==)\s*({_NUMBER})")
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})")
FORMS = '">= 0.95", "<= 1e-3", "== 3" or "0.3 .. 0.4"'


@dataclass(frozen=True, slots=True)
class Expectation:
    """Limits of a result, both included."""

    text: str
    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> "Expectation | None":
        """The limits that a text states; None if it states none."""
        if match := _BOUND.fullmatch(text.strip()):
            limit = float(match[2])
            low = -math.inf if match[1] == "<=" else limit
            high = math.inf if match[1] == ">=" else limit
            return cls(text, low, high)
        if match := _RANGE.fullmatch(text.strip()):
            low, high = float(match[1]), float(match[2])
            return cls(text, low, high) if low <= high else None
        return None

    def holds(self, value: float) -> bool:
        """Whether a value lies within the limits; NaN never does."""
        return self.low <= value <= self.high


def misses(expected: Mapping[str, Expectation], results: Mapping[str, float]) -> list[str]:
    """What was expected and not reached, a line each."""
    result = []
    for name, wanted in expected.items():
        if name not in results:
            has = ", ".join(results) or "nothing"
            result.append(f"{name}: expected {wanted.text}, but the results hold only: {has}")
        elif not wanted.holds(results[name]):
            result.append(f"{name}: expected {wanted.text}, got {results[name]:.6g}")
    return result
