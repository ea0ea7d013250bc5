"""What connects a graph with the host: streams, remote buffers, host functions, functions."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tremula.base.types import Type

if TYPE_CHECKING:
    from tremula.poplar.programs import Program
    from tremula.poplar.tensors.tensor import Tensor


class ReplicatedStreamMode(Enum):
    """REPLICATE: each replica has data of its own. BROADCAST: one copy for all."""

    REPLICATE = "replicate"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True, eq=False)
class DataStream:
    """A FIFO between host and device; one transfer moves `n_elements`."""

    handle: str
    type: Type
    n_elements: int
    is_host_to_device: bool
    mode: ReplicatedStreamMode = ReplicatedStreamMode.REPLICATE
    buffering_depth: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class RemoteBuffer:
    """Off-chip memory: `repeats` rows of `n_elements`."""

    handle: str
    type: Type
    n_elements: int
    repeats: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class HostFunction:
    """Host code a program can call with tensors."""

    handle: str
    inputs: tuple[tuple[Type, int], ...]
    outputs: tuple[tuple[Type, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A program whose code all its `Call`s share."""

    program: "Program"
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionBuffer:
    """Remote memory that holds a function's code; copying it in only costs time."""

    function: Function


@dataclass(slots=True)
class HostHandles:
    """Every name the host can use, by kind."""

    writes: dict[str, "Tensor"] = field(default_factory=dict)
    reads: dict[str, "Tensor"] = field(default_factory=dict)
    streams: dict[str, DataStream] = field(default_factory=dict)
    remote_buffers: dict[str, RemoteBuffer] = field(default_factory=dict)
    host_functions: dict[str, HostFunction] = field(default_factory=dict)
