"""JSON from outside: the type of its objects, and a reader without the values JSON cannot have.

`json.loads` reads `NaN`, `Infinity` and `1e999`, which overflow where they are used, and gives up
on deep nesting with another error than on other mistakes.
"""

import json
import math
from typing import Any, NoReturn

JsonObject = dict[str, Any]


def loads(text: str | bytes | bytearray) -> Any:  # noqa: ANN401 - what JSON can hold
    """The value of a text; ValueError says what is wrong with it."""
    try:
        return json.loads(text, parse_constant=_reject, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _reject(text)


def _reject(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a finite number")
