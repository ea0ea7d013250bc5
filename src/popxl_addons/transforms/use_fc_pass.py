"""How products with weights are planned.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.settings import (
    disable_fc_pass,
    enable_fc_pass,
)

__all__ = [
    "disable_fc_pass",
    "enable_fc_pass",
]
