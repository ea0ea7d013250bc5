"""poptorch.enums: the enumerations."""

from tremula.frontends.poptorch import enums as _enums
from tremula.frontends.poptorch.enums import *  # noqa: F403 - all its names are public

__all__ = _enums.__all__
