"""The error that a JAX function raises which cannot be translated."""

from tremula.base.errors import PoplarError


class JaxError(PoplarError):
    """A JAX program that Tremula cannot run, and why."""
