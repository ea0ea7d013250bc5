"""pva's enumerations, its names of memory categories, and lists that make their items late."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Generic, TypeVar, overload

Item = TypeVar("Item")


class ComputeInstrumentation(IntEnum):
    Off = 0
    Vertex = 1
    Tile = 2
    Ipu = 3
    Device = 4
    Unknown = 5


class ExternalExchangeInstrumentation(IntEnum):
    Off = 0
    Tile = 1
    Unknown = 2


class TargetType(Enum):
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

# Tremula's categories by pva's names; pva's others exist and are zero.
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


class LazyList(Sequence[Item], Generic[Item]):
    """A list whose items are made when they are asked for."""

    print_length = 10

    def __init__(self, n: int, make: Callable[[int], Item]):
        self._n, self._make = n, make

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, at: int) -> Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...

    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        if isinstance(at, slice):
            return [self._make(i) for i in range(*at.indices(self._n))]
        if not -self._n <= at < self._n:
            raise IndexError(f"index {at} of a list of {self._n}")
        return self._make(at % self._n)

    def __iter__(self) -> Iterator[Item]:
        return map(self._make, range(self._n))

    def __repr__(self) -> str:
        shown = ", ".join(repr(item) for item in self[: self.print_length])
        return f"[{shown}{', …' if self._n > self.print_length else ''}]"
