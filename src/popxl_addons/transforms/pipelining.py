"""Pipelines of stages.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.transforms.pipelining import (
    PipelineBoundGraph,
    Pipelining,
    pipelined_execution,
)
from tremula.frontends.popxl_addons.transforms.stages import (
    Restore,
    StageContext,
    Stash,
    get_op_pipeline_stage,
)

__all__ = [
    "PipelineBoundGraph",
    "Pipelining",
    "Restore",
    "StageContext",
    "Stash",
    "get_op_pipeline_stage",
    "pipelined_execution",
]
