"""How far a number can be trusted: one scale, worded for costs and for constants of a machine.

| costs of vertices | constants | |
|---|---|---|
| published | stated | a public source gives the number |
| fitted | fitted | fitted to measurements |
| derived | derived | computed from what sources give |
| placeholder | guessed | our guess, and where a total rests on it a report says so |
| yours | yours | you said so: an estimate given to a vertex, a constant that was changed |
"""

from enum import Enum
from typing import Literal, get_args


class Provenance(Enum):
    """How far a cost can be trusted."""

    PUBLISHED = "published"
    FITTED = "fitted"
    DERIVED = "derived"
    PLACEHOLDER = "placeholder"
    YOURS = "yours"


ConstantProvenance = Literal["stated", "derived", "fitted", "guessed", "yours"]
CONSTANT_PROVENANCES: tuple[str, ...] = get_args(ConstantProvenance)
