"""What goes wrong in configurations of Optimum, by name."""

from tremula.base.errors import PoplarError


class IncompatibleIPUConfigError(PoplarError, ValueError):
    """Fields of an IPUConfig that contradict each other, or the model they are used for."""


class NotPipelinable(PoplarError, KeyError):
    """A model that no rule spreads over IPUs."""
