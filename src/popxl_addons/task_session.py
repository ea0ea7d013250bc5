"""Sessions with named streams and checkpoints.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.task_session import (
    TaskSession,
    initialise_memmap_dir_from_checkpoint,
    write_variables_pb,
)

__all__ = [
    "TaskSession",
    "initialise_memmap_dir_from_checkpoint",
    "write_variables_pb",
]
