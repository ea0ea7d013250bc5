"""popdist.poptorch: options of a process among others."""

from tremula.frontends.poptorch.options.popdist import Options

__all__ = ["Options"]
