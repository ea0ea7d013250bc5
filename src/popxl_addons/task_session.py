"""Sessions with named inputs, outputs and checkpoints."""

from tremula.frontends.popxl_addons.task_session import (
    TaskSession,
)

__all__ = [
    "TaskSession",
]
