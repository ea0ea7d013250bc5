"""The values of PopTorch's enumerations, which scripts and files store."""

from enum import IntEnum

import pytest

import poptorch
import poptorch.enums

NUMBERS = {
    "OutputMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "DataLoaderMode": {"Sync": 0, "Async": 1, "AsyncRebatched": 2},
    "SharingStrategy": {"SharedMemory": 0, "FileSystem": 1, "Fork": 2, "ForkServer": 3},
    "ConnectionType": {"Always": 0, "OnDemand": 1, "Never": 2},
    "ReductionType": {"Sum": 0, "Mean": 1, "NoReduction": 2},
    "MeanReductionStrategy": {"Running": 0, "Post": 1, "PostAndLoss": 2},
    "SyncPattern": {"Full": 0, "SinglePipeline": 1, "ReplicaAndLadder": 2},
    "Liveness": {
        "AlwaysLive": 0,
        "OffChipAfterFwd": 1,
        "OffChipAfterFwdNoOverlap": 2,
        "OffChipAfterEachPhase": 3,
    },
    "AutoStage": {"SameAsIpu": 0, "AutoIncrement": 1},
    "MultiConvPlanType": {"Parallel": 0, "Serial": 1},
    "CommGroupType": {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3},
    "VariableRetrievalMode": {"OnePerGroup": 0, "AllReplicas": 2},
    "HalfFloatCastingBehavior": {"FloatDowncastToHalf": 0, "HalfUpcastToFloat": 1, "Default": 2},
}
TEXTS = {
    "MatMulSerializationMode": {
        "InputChannels": "input_channels",
        "ReducingDim": "reducing_dim",
        "OutputChannels": "output_channels",
        "Disabled": "none",
    },
    "OverlapMode": {
        "NoOverlap": "no_overlap",
        "OverlapAccumulationLoop": "overlap_accumulation_loop",
        "OverlapDeviceIterationLoop": "overlap_device_iteration_loop",
    },
}


@pytest.mark.parametrize("name", [*NUMBERS, *TEXTS])
def test_values(name):
    """Each enumeration has exactly the members and values that PopTorch's has."""
    kind = getattr(poptorch, name)
    assert kind is getattr(poptorch.enums, name)
    assert {member.name: member.value for member in kind} == {**NUMBERS, **TEXTS}[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_numbers(name):
    """A member with a number is that number."""
    kind = getattr(poptorch, name)
    assert issubclass(kind, IntEnum)
    assert all(member == value for member, value in zip(kind, NUMBERS[name].values(), strict=True))
