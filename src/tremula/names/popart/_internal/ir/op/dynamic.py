"""popart._internal.ir.op.dynamic: classes of operations, by name."""

from tremula.frontends.popxl.core.internal import class_of as _class_of


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _class_of(name)
