"""popxl.ops: the operations."""

from typing import Any as _Any

from tremula.frontends.popxl.core.call_site import CallSiteInfo, ConditionalSiteInfo
from tremula.frontends.popxl.ops.products import PadType
from tremula.frontends.popxl.ops.public import function_of as _function_of
from tremula.frontends.popxl.ops.public import operation_names as _operation_names

# The functions are bound, not looked up: importing a module such as popxl.ops.add hides none.
globals().update({_name: _function_of(_name) for _name in _operation_names()})


def __getattr__(name: str) -> _Any:  # noqa: ANN401  operations take and give anything
    if name.startswith("__"):
        raise AttributeError(name)
    return _function_of(name)
