"""popdist.poptorch: options of a process among others."""

from tremula.frontends.torch.popdist_options import Options

__all__ = ["Options"]
