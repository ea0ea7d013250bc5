"""LAMB for one variable."""

from tremula.frontends.popxl_addons.optimizers.lamb import (
    LambOptimizerStep,
)

__all__ = [
    "LambOptimizerStep",
]
