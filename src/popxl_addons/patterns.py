"""PopART's patterns.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.settings import (
    apply_pre_alias_patterns,
)

__all__ = [
    "apply_pre_alias_patterns",
]
