"""The enumerations of PopART, some of which are PopTorch's, too.

Values are part of the API: scripts and files store them.
"""

from enum import Enum, IntEnum

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AdamMode",
    "AdaptiveMode",
    "AnchorReturnTypeId",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "CollectiveOperator",
    "CommGroupType",
    "DataType",
    "DeviceConnectionType",
    "DeviceSelectionCriterion",
    "DeviceType",
    "DotCheck",
    "ExchangeStrategy",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "InitType",
    "Instrumentation",
    "IrSerializationFormat",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "PatternsLevel",
    "RecomputationType",
    "RecomputeType",
    "RecoveryAction",
    "ReductionType",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "ScatterReduction",
    "SGDAccumulatorAndMomentum",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorRemapType",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "VirtualGraphMode",
    "WeightDecayMode",
]


class OptionEnum(IntEnum):
    """A choice with PopART's number: `int(choice)` is what an option holds."""

    __str__ = Enum.__str__


class AccumulateOuterFragmentSchedule(OptionEnum):
    """In which order the chips of a pipeline run what follows the accumulation of gradients."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AdamMode(OptionEnum):
    """The optimisers of Adam's family."""

    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class AdaptiveMode(OptionEnum):
    """The optimisers that scale by a mean of squares alone."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class AnchorReturnTypeId(OptionEnum):
    """Which values of an anchored tensor come back from a step."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class AutodiffStitchStrategy(OptionEnum):
    """Where the backward graph of a subgraph gets the forward tensors it needs from."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationBatchSchedule(OptionEnum):
    """How the parts of a batch that is computed in parts are ordered."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class BatchSerializationMethod(OptionEnum):
    """How a batch is computed in parts."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationTransformContext(OptionEnum):
    """Whether a batch is cut before or after the backward pass is made."""

    Fwd = 0
    Bwd = 1
    Forward = 0
    Backward = 1


class CollectiveOperator(OptionEnum):
    """How values of replicas combine."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


class CommGroupType(OptionEnum):
    """Which replicas form a group: all, neighbours, every n-th, or each its own."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3
    Ungrouped = 3


class DataType(OptionEnum):
    """The type of a tensor's elements, by ONNX's names."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT32 = 6
    UINT64 = 7
    BOOL = 8
    FLOAT = 9
    FLOAT16 = 10
    BFLOAT16 = 11
    DOUBLE = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    STRING = 15
    UNDEFINED = 16


class DeviceConnectionType(OptionEnum):
    """When a device is attached: at once, when it first runs, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(OptionEnum):
    """Which of several free devices is taken."""

    First = 0
    Random = 1


class DeviceType(OptionEnum):
    """The kind of device: a modelled IPU, this computer, or a machine."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class RecoveryAction(OptionEnum):
    """What makes a machine usable after a failure."""

    IPU_RESET = 0
    LINK_RESET = 1
    PARTITION_RESET = 2
    FULL_RESET = 3


class TensorRemapType(OptionEnum):
    """In which passes a remapped tensor gets another layout."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class DotCheck(OptionEnum):
    """After which step of the compilation a graph is written as a DOT file."""

    Fwd0 = 0
    Fwd1 = 1
    Bwd0 = 2
    PreAlias = 3
    Final = 4


class ExchangeStrategy(OptionEnum):
    """When inputs and outputs move, compared with the computation."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ExecutionPhaseIOSchedule(OptionEnum):
    """When tensors of a phase are loaded: in the phase before it, or just before their use."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(OptionEnum):
    """How the weights of a phase are updated: one by one, or step by step for all of them."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(OptionEnum):
    """Which gradients automatic loss scaling looks at."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class InitType(OptionEnum):
    """What a new tensor holds."""

    NoInit = 0
    Zero = 1


class Instrumentation(OptionEnum):
    """What a count of cycles covers: a whole call, or its inner loop on each chip."""

    Outer = 0
    Inner = 1


class IrSerializationFormat(OptionEnum):
    """The form of `_serializeIr`."""

    JSON = 0


class MeanReductionStrategy(OptionEnum):
    """When a mean of gradients is divided by their number."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class MergeVarUpdateType(OptionEnum):
    """Which weights are updated together."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class PatternsLevel(OptionEnum):
    """How many rewrites of the graph are on: the second argument of `setPatterns`."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


class RecomputationType(OptionEnum):
    """What is recomputed in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class RecomputeType(OptionEnum):
    """Whether the result of one operation is recomputed or stored."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class ReductionType(OptionEnum):
    """How gradients of accumulation steps and replicas are combined."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class ReplicatedStreamMode(OptionEnum):
    """Whether each replica reads its own micro-batch, or all read the same one."""

    Replicate = 0
    Broadcast = 1


class ReplicatedTensorSharding(OptionEnum):
    """Whether each replica holds only a part of a tensor."""

    Off = 0
    On = 1


class ScatterReduction(OptionEnum):
    """How elements that are scattered to one place combine."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


class SGDAccumulatorAndMomentum(OptionEnum):
    """Whether one tensor is both accumulator and velocity of SGD, or each has its own."""

    Combined = 0
    Separate = 1


class SubgraphCopyingStrategy(OptionEnum):
    """When inputs and outputs of a subgraph are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class SyncPattern(OptionEnum):
    """How chips synchronise."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class SyntheticDataMode(OptionEnum):
    """What the inputs are made of on the device, instead of data from the host."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class TensorStorage(OptionEnum):
    """Whether a tensor lives in the memory of tiles or outside of the chip."""

    OnChip = 0
    OffChip = 1


class TileSet(OptionEnum):
    """Which tiles hold a tensor: those that compute, or those set aside for transfers."""

    Compute = 0
    IO = 1


class VariableRetrievalMode(OptionEnum):
    """Which replicas return a variable that differs between groups of them."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class VirtualGraphMode(OptionEnum):
    """How the chip of each operation is chosen."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class WeightDecayMode(OptionEnum):
    """Whether weights decay by themselves, or through the gradient as an L2 penalty."""

    Decay = 0
    L2Regularization = 1
