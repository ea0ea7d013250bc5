"""poptorch.profiling: named spans of host time."""

from tremula.frontends.poptorch.profiling import Channel

__all__ = ["Channel"]
