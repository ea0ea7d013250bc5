"""Adam.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.optimizers.adam import (
    AdamOptimizerStep,
)

__all__ = [
    "AdamOptimizerStep",
]
