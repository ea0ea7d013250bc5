"""The enumerations of PopTorch; those that PopART has, too, are PopART's.

Values are part of the API: scripts and files store them.
"""

from enum import Enum, IntEnum

from tremula.frontends.popart import enums as popart
from tremula.frontends.popart.enums import (
    CommGroupType,
    MeanReductionStrategy,
    ReductionType,
    SyncPattern,
)

__all__ = [
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
]


class DataLoaderMode(IntEnum):
    """Which process reads the data set: the training process, or another one."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2  # the other process reads single elements and makes the batches itself


class SharingStrategy(IntEnum):
    """How the process of an asynchronous accessor is started and shares its tensors."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(IntEnum):
    """Which micro-batches of a call are returned."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4  # All for inference, Final for training


class ConnectionType(IntEnum):
    """When a device is attached: when a model is compiled, when it first runs, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(IntEnum):
    """How mixed half and float used to be cast; only Default has an effect now."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class MatMulSerializationMode(Enum):
    """The dimension along which a serialised matrix product is cut."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    """What the transfer of an input or output overlaps with."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class Liveness(IntEnum):
    """When tensors of a serial phase leave the chip."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(IntEnum):
    """How a block without an explicit stage gets one: its chip's number, or the next free one."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(IntEnum):
    """Whether the convolutions of a MultiConv run together or one after the other."""

    Parallel = 0
    Serial = 1


class VariableRetrievalMode(IntEnum):
    """Whether one replica of a group or all of them return a variable: two of PopART's choices."""

    OnePerGroup = popart.VariableRetrievalMode.OnePerGroup.value
    AllReplicas = popart.VariableRetrievalMode.AllReplicas.value
