"""poptorch.profiling: named stretches of host time."""

from tremula.frontends.torch.profiling import Channel

__all__ = ["Channel"]
