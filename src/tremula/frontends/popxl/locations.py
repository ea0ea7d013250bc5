"""Where tensors are stored, by PopXL's names: on chips or in remote memory, whole or in shards."""

from dataclasses import dataclass
from enum import Enum


class TensorStorage(Enum):
    """The memory that holds a tensor."""

    OnChip = "OnChip"
    OffChip = "OffChip"


class ReplicatedTensorSharding(Enum):
    """Whether each replica holds a part of a tensor only."""

    On = "On"
    Off = "Off"


class ExecutionContext(Enum):
    """The program that an operation belongs to: a run, or one that moves weights."""

    Normal = 0
    AccumulateOuterFragment = 1
    WeightsFromHostFragment = 2
    WeightsToHostFragment = 3
    OptimizerFromHostFragment = 4
    Subgraph = 5


@dataclass(frozen=True)
class TensorLocation:
    """Where one tensor, or several, are stored."""

    storage: TensorStorage = TensorStorage.OnChip
    replicated_tensor_sharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off
