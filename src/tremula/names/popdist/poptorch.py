"""popdist.poptorch: options of one of several processes."""

from tremula.frontends.poptorch.options.popdist import Options

__all__ = ["Options"]
