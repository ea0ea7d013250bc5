"""What connects a graph with the host: streams, remote buffers, host functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from tremula.base.errors import InvalidOption, StreamConnectionError
from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.tensors.checks import whole_sizes

if TYPE_CHECKING:
    from tremula.poplar.tensors.tensor import Tensor

Claimed = TypeVar("Claimed")


class ReplicatedStreamMode(Enum):
    """REPLICATE: each replica has its own data. BROADCAST: one copy for all."""

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


@dataclass(slots=True)
class HostHandles:
    """Every name the host can use, by kind."""

    writes: dict[str, "Tensor"] = field(default_factory=dict)
    reads: dict[str, "Tensor"] = field(default_factory=dict)
    streams: dict[str, DataStream] = field(default_factory=dict)
    remote_buffers: dict[str, RemoteBuffer] = field(default_factory=dict)
    host_functions: dict[str, HostFunction] = field(default_factory=dict)


def claim(table: dict[str, Claimed], handle: str, value: Claimed) -> Claimed:
    """Enter something by its handle; a handle that is taken is an error."""
    sizes = [getattr(value, name, 1) for name in ("n_elements", "repeats")]
    if min(whole_sizes(sizes) or (0,)) < 1:
        raise StreamConnectionError(
            f"{handle!r} moves nothing: it has {sizes[0]!r} elements and {sizes[1]!r} rows.",
            source=user_source(),
            hint="use n_elements and repeats of 1 or more, whole numbers",
        )
    if handle in table:
        raise StreamConnectionError(
            f"handle {handle!r} is taken.",
            source=user_source(),
            hint="give each its own name",
        )
    table[handle] = value
    return value


def check_writable(handle: str, tensor: "Tensor") -> None:
    """Reject a tensor that the host cannot write element by element."""
    if tensor.contains_constant or tensor.contains_aliases:
        raise StreamConnectionError(
            f"host write {handle!r} needs a tensor without constants and repeated elements.",
            source=user_source(),
            hint="make the handle for the variable itself",
        )


def buffering_depth_of(options: object, otherwise: int) -> int:
    """The stream's `bufferingDepth`, of options as Poplar takes them."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOption(
            f"options of a stream are a dictionary, got {type(options).__name__}.",
            source=user_source(),
            hint='write {"bufferingDepth": "2"}',
        )
    return int(str((options or {}).get("bufferingDepth", otherwise)))
