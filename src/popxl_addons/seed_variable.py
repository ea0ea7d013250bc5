"""Seeds of random operations as variables.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.seeds import (
    seed_variable,
)

__all__ = [
    "seed_variable",
]
