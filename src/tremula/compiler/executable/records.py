"""The plain records an executable is made of, and how they are made from a graph's parts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tremula.base.types import Type, as_type
from tremula.compiler.file.codec import record
from tremula.compiler.program_ir import CopyPlan, StepKind
from tremula.hardware import chip_from_toml, system_from_toml
from tremula.poplar.streams import DataStream, HostFunction, RemoteBuffer, ReplicatedStreamMode
from tremula.poplar.target import Target, TargetType
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import ByteTileMap

for _cls in (Runs, CopyPlan, StepKind, ByteTileMap):
    record(_cls)


@record
@dataclass(frozen=True, slots=True)
class View:
    """Where a tensor's elements are; what the host reads, writes and prints.

    The runs are those of the tensor with its dimensions in `order`, widest strides first, which
    keeps the runs of a transposed weight few. An empty order is the tensor's own.
    """

    type_name: str
    shape: tuple[int, ...]
    runs: Runs
    metadata_byte: int = -1  # of 8-bit floats: where their metadata is
    order: tuple[int, ...] = ()

    @property
    def type(self) -> Type:
        return as_type(self.type_name)

    @property
    def n_elems(self) -> int:
        return self.runs.n_elems


def view_of(tensor: Tensor) -> View:
    metadata = tensor.metadata if tensor.type.requires_metadata else None
    at = -1 if metadata is None else metadata.offset
    order = tuple(sorted(range(tensor.rank), key=lambda d: -abs(tensor.strides[d])))
    if order == tuple(range(tensor.rank)):
        return View(tensor.type.name, tensor.shape, tensor.runs(), at)
    runs = tensor.dim_shuffle(order).runs()
    return View(tensor.type.name, tensor.shape, runs, at, order)


@record
@dataclass(frozen=True, slots=True)
class StepRecord:
    """A static step; see program_ir.Step."""

    kind: StepKind
    name: str
    source: str
    path: tuple[str, ...]
    compute_set: int
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    detail: Mapping


@record
@dataclass(frozen=True, slots=True)
class TableRecord:
    """One vertex table: kernel columns in ABI order; `state_columns` are the mutable ones."""

    codelet: int
    tile: np.ndarray
    columns: tuple[np.ndarray, ...]
    state_columns: tuple[int, ...]
    is_costed: bool  # False: its cycles are counted while it runs

    @property
    def n_rows(self) -> int:
        return len(self.tile)


@record
@dataclass(frozen=True, slots=True)
class ComputeSetRecord:
    name: str
    source: str
    tables: tuple[TableRecord, ...]
    gathers: tuple[CopyPlan, ...]
    scatters: tuple[CopyPlan, ...]


@record
@dataclass(frozen=True, slots=True)
class VariableRecords:
    """Columns of all variables."""

    names: tuple[str, ...]
    type_names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    base_bytes: np.ndarray
    end_bytes: np.ndarray
    is_constant: np.ndarray
    sources: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class InitialValue:
    view: View
    values: np.ndarray


@record
@dataclass(frozen=True, slots=True)
class StreamRecord:
    handle: str
    type_name: str
    n_elements: int
    is_host_to_device: bool
    is_broadcast: bool
    buffering_depth: int


@record
@dataclass(frozen=True, slots=True)
class BufferRecord:
    handle: str
    type_name: str
    n_elements: int
    repeats: int


@record
@dataclass(frozen=True, slots=True)
class HostFunctionRecord:
    handle: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@record
@dataclass(frozen=True, slots=True)
class HostRecords:
    """Everything the host can name."""

    writes: Mapping[str, View]
    reads: Mapping[str, View]
    streams: Mapping[str, StreamRecord]
    buffers: Mapping[str, BufferRecord]
    functions: Mapping[str, HostFunctionRecord]


@record
@dataclass(frozen=True, slots=True)
class MachineRecord:
    """The target, in a form that can be written down."""

    chip_toml: str
    n_ipus: int
    tiles_per_ipu: int
    type_name: str
    system_toml: str
    system_name: str  # empty if it was made for this program

    def target(self) -> Target:
        chip = chip_from_toml(self.chip_toml)
        machine = system_from_toml(self.system_toml, "the system of an executable", chip)
        return Target(chip, self.n_ipus, self.tiles_per_ipu, TargetType(self.type_name), machine)


def stream_record(stream: DataStream) -> StreamRecord:
    return StreamRecord(
        stream.handle,
        stream.type.name,
        stream.n_elements,
        stream.is_host_to_device,
        stream.mode is ReplicatedStreamMode.BROADCAST,
        stream.buffering_depth,
    )


def buffer_record(buffer: RemoteBuffer) -> BufferRecord:
    return BufferRecord(buffer.handle, buffer.type.name, buffer.n_elements, buffer.repeats)


def host_function_record(function: HostFunction) -> HostFunctionRecord:
    return HostFunctionRecord(
        function.handle,
        tuple((t.name, n) for t, n in function.inputs),
        tuple((t.name, n) for t, n in function.outputs),
    )
