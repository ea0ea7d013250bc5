"""Steps of optimisers as modules.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .adam import (
    AdamOptimizerStep,
)
from .lamb import (
    LambOptimizerStep,
)

__all__ = [
    "AdamOptimizerStep",
    "LambOptimizerStep",
    "adam",
    "lamb",
]
