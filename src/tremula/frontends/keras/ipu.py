"""The module that scripts call `ipu`: its parts by the names they have in TensorFlow for IPUs."""

from types import SimpleNamespace

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

utils = SimpleNamespace(
    configure_ipu_system=configure_ipu_system,
    reset_ipu_configuration=reset_ipu_configuration,
    DeviceConnectionType=enums.DeviceConnectionType,
    SelectionOrder=enums.SelectionOrder,
)
pipelining_ops = SimpleNamespace(
    PipelineSchedule=PipelineSchedule, RecomputationMode=RecomputationMode
)
ipu_infeed_queue = SimpleNamespace(
    IPUInfeedQueue=IPUInfeedQueue, IPUIterator=IPUIterator, IPUOwnedIterator=IPUOwnedIterator
)
ipu_outfeed_queue = SimpleNamespace(
    IPUOutfeedQueue=IPUOutfeedQueue,
    IPUOutfeedMode=IPUOutfeedMode,
    ScopedIPUOutfeedQueue=ScopedIPUOutfeedQueue,
)
optimizers = SimpleNamespace(ALSOptimizer=ALSOptimizer)

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
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "ipu_strategy",
    "loop_range",
    "optimizers",
    "pipelining_ops",
    "reset_ipu_configuration",
    "utils",
]
