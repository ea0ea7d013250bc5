"""Helpers for tests of modules.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.testing_utils import (
    TensorInput,
    ops_of_type,
    run_module,
)

__all__ = [
    "TensorInput",
    "ops_of_type",
    "run_module",
]
