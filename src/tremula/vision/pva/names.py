"""pva's enumerations and its names of memory categories."""

from enum import Enum, IntEnum


class ComputeInstrumentation(IntEnum):
    """How cycles of vertices were measured."""

    Off = 0
    Vertex = 1
    Tile = 2
    Ipu = 3
    Device = 4
    Unknown = 5


class ExternalExchangeInstrumentation(IntEnum):
    """How exchanges between chips were measured."""

    Off = 0
    Tile = 1
    Unknown = 2


class TargetType(Enum):
    """What kind of machine a target is."""

    Cpu = "CPU"
    Ipu = "IPU"
    IpuModel = "IPU_MODEL"
    Unknown = "Unknown"


class Architecture(Enum):
    Ipu1 = "ipu1"
    Ipu2 = "ipu2"
    Ipu21 = "ipu21"
    Unknown = "Unknown"


class IPU:
    """Holds `Architecture`, as pva does."""

    Architecture = Architecture


_PROGRAM_TYPES = """
    Sequence Repeat RepeatWhile Loop If Switch OnEveryTileSwitch Call OnTileExecute DoExchange
    GlobalExchange StreamCopyBegin StreamCopyMid StreamCopyEnd Sync SyncAns Sans WriteUndef
    HostFunction PrintTensor Branch Abort SetMachineState LoadFunction Unknown
""".split()
ProgramType = Enum("ProgramType", [(name, name) for name in _PROGRAM_TYPES])

# Tremula's categories by pva's names; pva's other categories read as zero.
CATEGORY_OF_NAME = {
    "constant": "Constants", "variable": "Variables", "controlCode": "Control Code",
    "controlId": "", "controlTable": "Control Table", "copyDescriptor": "Copy Descriptors",
    "globalExchangeCode": "Global Exchange Code",
    "globalExchangePacketHeader": "Global Exchange Packet Headers", "globalMessage": "",
    "hostExchangeCode": "Host Exchange Code",
    "hostExchangePacketHeader": "Host Exchange Packet Headers", "hostMessage": "",
    "instrumentationResults": "Instrumentation Results",
    "internalExchangeCode": "Internal Exchange Code", "message": "", "multiple": "",
    "outputEdge": "", "rearrangement": "", "sharedCodeStorage": "Shared Code Storage",
    "sharedDataStorage": "Shared Data Storage", "stack": "Stack",
    "vectorListDescriptor": "VectorList Descriptors", "vertexCode": "Vertex Code",
    "vertexFieldData": "Vertex Field Data", "vertexInstanceState": "Vertex Instances",
}  # fmt: skip
