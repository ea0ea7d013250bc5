"""Adam for one variable."""

from tremula.frontends.popxl_addons.optimizers.adam import (
    AdamOptimizerStep,
)

__all__ = [
    "AdamOptimizerStep",
]
