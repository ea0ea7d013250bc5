"""PopART's enumerations that PopTorch's options do not share."""

from tremula.frontends.popart.enums import OptionEnum


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


class AnchorReturnTypeId(OptionEnum):
    """Which values of an anchored tensor come back from a step."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class ExchangeStrategy(OptionEnum):
    """When inputs and outputs move, compared with the computation."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(OptionEnum):
    """Whether replicas read micro-batches of their own, or all the same one."""

    Replicate = 0
    Broadcast = 1


class InitType(OptionEnum):
    """What a new tensor holds."""

    NoInit = 0
    Zero = 1


class DeviceType(OptionEnum):
    """What computes."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceSelectionCriterion(OptionEnum):
    """Which of several free devices is taken."""

    First = 0
    Random = 1


class CommGroupType(OptionEnum):
    """Which replicas form a group: all, neighbours, every n-th, or each its own."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class WeightDecayMode(OptionEnum):
    """Whether weights decay by themselves, or through the gradient as an L2 penalty."""

    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(OptionEnum):
    """Whether one tensor is both accumulator and velocity of SGD, or each has its own."""

    Combined = 0
    Separate = 1


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


class ScatterReduction(OptionEnum):
    """How elements that are scattered to one place combine."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


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


class IrSerializationFormat(OptionEnum):
    """The form of `_serializeIr`."""

    JSON = 0
