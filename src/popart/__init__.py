"""popart: the enumerations that PopTorch's options take, and the log. PopART itself is to come."""

from tremula.base.errors import suggest as _suggest
from tremula.frontends.popart.enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    DeviceConnectionType,
    DotCheck,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    PatternsLevel,
    RecomputationType,
    RecomputeType,
    ReductionType,
    ReplicatedTensorSharding,
    SubgraphCopyingStrategy,
    SyncPattern,
    SyntheticDataMode,
    TensorStorage,
    TileSet,
    VariableRetrievalMode,
    VirtualGraphMode,
)
from tremula.frontends.popart.logging import Logger, getLogger

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "DeviceConnectionType",
    "DotCheck",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "Instrumentation",
    "Logger",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "PatternsLevel",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicatedTensorSharding",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "VirtualGraphMode",
    "getLogger",
]


def __getattr__(name: str) -> object:
    advice = "" if name.startswith("_") else f"; {_suggest(name, __all__)}"
    raise AttributeError(
        f"module 'popart' has no attribute {name!r}: PopART itself is not here yet, only the "
        f"enumerations that poptorch.Options()._Popart.set takes, and getLogger{advice}"
    )
