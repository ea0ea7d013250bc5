"""poptorch.options: options, their groups, and execution strategies."""

from tremula.frontends.torch.blocks import Attribute
from tremula.frontends.torch.options import Options
from tremula.frontends.torch.options_base import OptionsDict
from tremula.frontends.torch.options_file import ConfigFileError
from tremula.frontends.torch.popart_options import _PopartOptions
from tremula.frontends.torch.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from tremula.frontends.torch.sub_options import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
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
