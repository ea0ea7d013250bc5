"""What can be wrong with a model that is captured or lowered; front ends show it their way."""

from tremula.base.errors import PoplarError


class CaptureError(PoplarError):
    """A model's step cannot be captured as one static graph."""


class UnsupportedOperations(PoplarError):
    """A captured step holds operations that have no lowering to tiles."""


class UnsuitableModel(PoplarError):
    """A captured step cannot run in the requested way."""


class FloatingPointException(PoplarError):
    """An operation made a NaN or an infinity while a program checks for them."""
