"""popart._internal.ir.op: a class for each kind of operation, such as AddOp."""

from tremula.frontends.popxl.core.internal import MatMulPartialsType
from tremula.frontends.popxl.core.internal import class_of as _class_of

from . import collectives, dynamic, exchange


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _class_of(name)
