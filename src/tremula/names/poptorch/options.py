"""poptorch.options: options, their groups, and execution strategies."""

from tremula.frontends.poptorch.blocks import Attribute
from tremula.frontends.poptorch.options.base import OptionsDict
from tremula.frontends.poptorch.options.file import ConfigFileError
from tremula.frontends.poptorch.options.groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.popart import _PopartOptions
from tremula.frontends.poptorch.options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)

__all__ = [
    "Attribute",
    "ConfigFileError",
    "Options",
    "OptionsDict",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]
