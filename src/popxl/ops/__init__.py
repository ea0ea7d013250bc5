"""popxl.ops: the operations."""

from tremula.frontends.popxl.core.call_site import CallSiteInfo, ConditionalSiteInfo
from tremula.frontends.popxl.ops.public import function_of as _function_of

from . import collectives, var_updates


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _function_of(name)
