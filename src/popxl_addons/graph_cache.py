"""Graphs made once for each function and types of arguments.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.graphs.cache import (
    GraphCache,
    argument_hash,
    bound_arguments,
    function,
    get_function_hash,
    tensor_hash,
)

__all__ = [
    "GraphCache",
    "argument_hash",
    "bound_arguments",
    "function",
    "get_function_hash",
    "tensor_hash",
]
