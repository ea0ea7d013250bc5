"""The module that scripts call `ipu`: its parts by the names they have in TensorFlow for IPUs."""

from types import ModuleType

from tremula.frontends.keras import config, enums
from tremula.frontends.keras import strategy as ipu_strategy
from tremula.frontends.keras.config import (
    IPUConfig,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from tremula.frontends.keras.enums import (
    IPUOutfeedMode,
    PipelineSchedule,
    RecomputationMode,
    ReplicatedMetricReductionMethod,
)
from tremula.frontends.keras.errors import KerasError
from tremula.frontends.keras.loops.queues import (
    IPUInfeedQueue,
    IPUIterator,
    IPUOutfeedQueue,
    IPUOwnedIterator,
    ScopedIPUOutfeedQueue,
)
from tremula.frontends.keras.loops.tape import GradientTape, loop_range
from tremula.frontends.keras.pipelines.assignments import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from tremula.frontends.keras.pipelines.stages import PipelineStage
from tremula.frontends.keras.scaling import ALSOptimizer
from tremula.frontends.keras.strategy import IPUStrategy

__all__ = [
    "ALSOptimizer",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "GradientTape",
    "IPUConfig",
    "IPUInfeedQueue",
    "IPUIterator",
    "IPUOutfeedMode",
    "IPUOutfeedQueue",
    "IPUOwnedIterator",
    "IPUStrategy",
    "KerasError",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineSchedule",
    "PipelineStage",
    "RecomputationMode",
    "ReplicatedMetricReductionMethod",
    "ScopedIPUOutfeedQueue",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
    "config",
    "configure_ipu_system",
    "enums",
    "get_ipu_config",
    "ipu_strategy",
    "loop_range",
    "reset_ipu_configuration",
]


def __getattr__(name: str) -> ModuleType:
    """Parts by their names in TensorFlow, such as `ipu.utils`; loaded on first use."""
    from tremula.frontends.keras.tensorflow.names import part_of  # its table names this module

    return part_of("tensorflow.python.ipu", name)
