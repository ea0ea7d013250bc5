"""Streams by name.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.streams import (
    InputStreams,
    OutputStreams,
)

__all__ = [
    "InputStreams",
    "OutputStreams",
]
