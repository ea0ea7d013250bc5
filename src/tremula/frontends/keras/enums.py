"""The choices of `IPUConfig` and of models, by the names scripts use."""

from enum import Enum, IntEnum


class SelectionOrder(Enum):
    """How chips of a machine are numbered."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class DeviceConnectionType(Enum):
    """When a process attaches to its device."""

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 2
    NEVER = 3


class StochasticRoundingBehaviour(Enum):
    """Where halves are rounded at random."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> "StochasticRoundingBehaviour":
        """ON or OFF."""
        return cls.ON if value else cls.OFF


class SchedulingAlgorithm(Enum):
    """How operations are put in order."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class MergeRemoteBuffersBehaviour(Enum):
    """Whether remote buffers of one size become one."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class GradientAccumulationReductionMethod(IntEnum):
    """How the gradients of accumulated batches combine."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2


class ReplicatedMetricReductionMethod(Enum):
    """What becomes of the metrics that replicas counted."""

    NONE = "NONE"
    LAST = "LAST"
    MEAN = "MEAN"
    SUM = "SUM"


class PipelineSchedule(IntEnum):
    """In which order the stages of a pipeline turn to forward and backward passes."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """Whether, and where, stages of a pipeline compute forward values again."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class ReduceOp(Enum):
    """How values of replicas combine."""

    SUM = "SUM"
    MEAN = "MEAN"


class IPUOutfeedMode(Enum):
    """Which results of a loop an outfeed keeps."""

    ALL = "all"
    LAST = "get_last"
