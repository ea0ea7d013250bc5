"""The compiler's view of a program: a frozen graph, static steps, and a flat instruction table."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tremula.base.source import Source
from tremula.poplar.streams import HostHandles
from tremula.poplar.target import Target
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import ByteTileMap
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import FrozenTable
from tremula.poplar.vertices.compute_set import TemplateInstance


@dataclass(frozen=True)
class FrozenComputeSet:
    """A compute set: its tables, or a template over its own variables."""

    name: str
    source: Source
    contents: tuple[FrozenTable, ...] | TemplateInstance

    @cached_property
    def tables(self) -> tuple[FrozenTable, ...]:
        """All vertices, addresses included. Passes that know about templates rarely need them."""
        of = self.contents
        if isinstance(of, TemplateInstance):
            return of.template.tables_over(of.table, of.variables, self.source)
        return of

    @property
    def template_tables(self) -> tuple[FrozenTable, ...]:
        """The tables or, cheaper, the template's: only the addresses of their edges differ."""
        return (
            self.contents.template.tables
            if isinstance(self.contents, TemplateInstance)
            else self.contents
        )

    @property
    def n_vertices(self) -> int:
        return sum(t.n_rows for t in self.template_tables)

    @property
    def n_runs(self) -> int:
        """Of all edges together."""
        return sum(len(e.runs.start) for t in self.template_tables for e in t.edges.values())


class OnChips(NamedTuple):
    """What is alike but for the chip it is on: the first such, and how many tiles further on."""

    first: np.ndarray
    n_tiles: np.ndarray


@dataclass(frozen=True, slots=True)
class FrozenGraph:
    """Everything the passes read. Only compute sets that some program executes are here."""

    target: Target  # of one replica
    replication_factor: int
    variables: VariableTable
    tile_map: ByteTileMap  # top-level tiles of one replica
    compute_sets: tuple[FrozenComputeSet, ...]
    handles: HostHandles
    initial_parts: tuple[tuple[Tensor, np.ndarray], ...]
    perf_estimators: dict
    replica_index: int | None
    # int64[n_compute_sets]: see lower/dedup.py; None where it was not computed.
    first_alike: np.ndarray | None = None
    on_chips: OnChips | None = None  # for each compute set

    def set_on_chips(self) -> OnChips:
        """For each compute set the first like it on any chip."""
        if self.on_chips is not None:
            return self.on_chips
        numbers = np.array(self.set_numbers(), np.int64)
        return OnChips(numbers, np.zeros_like(numbers))

    def set_numbers(self) -> list[int]:
        """For each compute set the number of the first one that is like it."""
        if self.first_alike is None:
            return list(range(len(self.compute_sets)))
        return self.first_alike.tolist()


class StepKind(Enum):
    """What a step does; each costs differently."""

    EXECUTE = "OnTileExecute"
    COPY = "DoExchange"
    STREAM_IN = "StreamCopyIn"
    STREAM_OUT = "StreamCopyOut"
    REMOTE_READ = "RemoteRead"
    REMOTE_WRITE = "RemoteWrite"
    CROSS_REPLICA = "CrossReplicaCopy"
    SYNC = "Sync"
    HOST_CALL = "HostFunction"
    PRINT = "PrintTensor"
    WRITE_UNDEF = "WriteUndef"
    BRANCH = "Branch"  # reads a predicate
    STAMP = "CycleStamp"
    ABORT = "Abort"
    MACHINE_STATE = "SetMachineState"
    LOAD_CODE = "LoadFunction"


HOST_KINDS = (  # steps that move data between tiles and the host, or its memory
    StepKind.STREAM_IN, StepKind.STREAM_OUT, StepKind.REMOTE_READ, StepKind.REMOTE_WRITE,
    StepKind.HOST_CALL, StepKind.PRINT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """A static step. `reads` and `writes` are whole tensors; those of EXECUTE are in its tables."""

    kind: StepKind
    name: str
    source: Source
    path: tuple[str, ...]  # names of the enclosing programs, outermost first
    compute_set: int = -1
    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] = ()
    detail: object = None  # the program node's own data: stream, buffer, sync type, message, …
    is_merged_host_sync: bool = False  # follows another stream copy: shares its host sync


class Opcode(IntEnum):
    """Instructions. Operands are in columns a … e; `step` is the static step or -1."""

    END = 0
    EXECUTE = 1  # a: compute set; b: address of the result flag or -1; c: its bytes
    COPY = 2  # a: copy
    JUMP = 3  # a: target
    LOOP_BEGIN = 4  # a: counter slot; b: count; c: target if count is 0
    LOOP_END = 5  # a: counter slot; b: target while iterations are left
    BRANCH_ZERO = 6  # a: byte address; b: bytes; c: target if zero
    BRANCH_NONZERO = 7  # a: byte address; b: bytes; c: target if not zero
    SWITCH = 8  # a: byte address; b: bytes; c, d: range of case rows; e: default target
    CALL = 9  # a: target
    RETURN = 10
    STAMP = 11  # a: byte address of 2 x uint32; b: chip; c: byte address of an earlier stamp or -1
    STEP = 12  # nothing but a step that takes time
    HOST = 13  # a step that Python does
    LOOP_FOREVER = 14  # a: target, unless the engine was stopped


# Instructions whose next one is decided by data, or by whoever runs the program.
DATA_DECIDES = (Opcode.BRANCH_ZERO, Opcode.BRANCH_NONZERO, Opcode.SWITCH, Opcode.LOOP_FOREVER)
N_OPERANDS = 5


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Element-wise copy as paired runs: row i moves count[i] elements of one size."""

    source: Runs
    destination: Runs  # same counts as source
    n_bytes: int  # element size
    overlaps: bool = False  # source and destination share bytes: goes through a buffer

    @property
    def n_runs(self) -> int:
        return len(self.source.start)


@dataclass(frozen=True, slots=True)
class AlikeCopy:
    """The first copy that one is like, and its variables in the order of that one's."""

    first: int
    variables: tuple[int, ...]
    # The first that is like it but for its chip, and how many tiles further on this one is.
    first_on_chips: int
    n_tiles: int


@dataclass(frozen=True, slots=True)
class LoweredPrograms:
    """All programs of an executable: entry points into one instruction table."""

    graph: FrozenGraph
    names: tuple[str, ...]
    entries: tuple[int, ...]
    code: np.ndarray  # int64[n, 1 + N_OPERANDS]: op, a … e
    step_of: np.ndarray  # int64[n]: static step of an instruction, -1 for pure control
    steps: tuple[Step, ...]
    copies: tuple[CopyPlan, ...]
    switch_cases: np.ndarray  # int64[m, 2]: value, target
    n_loop_slots: int
    alike_copies: tuple[AlikeCopy, ...] = ()  # one per copy

    def copies_by_step(self) -> dict[int, int]:
        """Step -> index of its copy plan."""
        is_copy = self.code[:, 0] == Opcode.COPY
        steps, copies = self.step_of[is_copy], self.code[is_copy, 1]
        return dict(zip(steps.tolist(), copies.tolist(), strict=True))
