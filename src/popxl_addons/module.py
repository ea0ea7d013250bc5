"""Modules with variables."""

from tremula.frontends.popxl_addons.graphs.module import (
    Module,
)

__all__ = [
    "Module",
]
