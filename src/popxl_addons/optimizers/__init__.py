"""Steps of optimisers."""

from tremula.frontends.popxl_addons.optimizers.adam import (
    AdamOptimizerStep,
)
from tremula.frontends.popxl_addons.optimizers.lamb import (
    LambOptimizerStep,
)

__all__ = [
    "AdamOptimizerStep",
    "LambOptimizerStep",
]
