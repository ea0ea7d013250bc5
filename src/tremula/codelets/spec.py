"""What a codelet is, as data: its fields, base class and source. Python and C++ share this form."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tremula.base.errors import suggest
from tremula.base.provenance import Provenance
from tremula.base.source import Source
from tremula.base.types import Type

if TYPE_CHECKING:
    from tremula.hardware import Chip


# Workers per tile of every IPU so far; kernels are made for this many unless a chip says otherwise.
N_WORKERS = 6


LAYOUTS = (
    "SPAN", "SHORT_SPAN", "ONE_PTR", "SCALED_PTR32", "SCALED_PTR64", "SCALED_PTR128",
    "COMPACT_PTR", "DELTAN", "COMPACT_DELTAN", "DELTANELEMENTS",
)  # fmt: skip


class Direction(Enum):
    INPUT = "Input"
    OUTPUT = "Output"
    INOUT = "InOut"


class FieldKind(Enum):
    """How a field is connected; docs/architecture.md has the columns of each kind."""

    SCALAR = "scalar edge"
    VECTOR = "vector edge"
    VECTOR_LIST = "vector of vector edges"
    SCALAR_LIST = "vector of scalar edges"
    STATE = "state"
    STATE_VECTOR = "state vector"


class VertexBase(Enum):
    VERTEX = "Vertex"
    MULTI_VERTEX = "MultiVertex"
    SUPERVISOR_VERTEX = "SupervisorVertex"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    name: str
    kind: FieldKind
    type: Type
    direction: Direction | None = None  # None for state
    layout: str = "SPAN"
    min_align: int = 1  # bytes
    is_interleaved: bool = False
    is_const: bool = False  # state only: cannot change while running

    @property
    def is_edge(self) -> bool:
        return self.direction is not None

    @property
    def is_read(self) -> bool:
        return self.direction in (Direction.INPUT, Direction.INOUT)

    @property
    def is_written(self) -> bool:
        return self.direction in (Direction.OUTPUT, Direction.INOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeletSpec:
    name: str  # as given to add_vertex, e.g. "popops::Fill<half>"
    fields: tuple[FieldSpec, ...]
    base: VertexBase
    returns_bool: bool
    language: str  # "python" or "c++"
    n_instructions: int  # estimate of the vertex code on a tile
    routines: tuple[tuple[str, int], ...] = ()  # it calls, and their instructions
    constraints: tuple[str, ...] = ()  # "elem(*a) != elem(*b)", …
    source: Source | None = None
    draws_random: bool = False  # it uses python/random.py
    rounds_to_half: bool = False  # its results depend on how halves are rounded

    @property
    def has_worker_state(self) -> bool:
        """Whether its table ends with the column `worker_state`."""
        return self.draws_random or self.rounds_to_half

    def field(self, name: str) -> FieldSpec:
        return next(f for f in self.fields if f.name == name)


@dataclass(frozen=True)
class CostInput:
    """What a `cycles` method sees: per-row sizes and state of a vertex table, and the chip.

    `sizes[field]` is int64[n]: elements of the field per row (sum over sub-vectors).
    `n_subs[field]` is int64[n]: sub-vectors per row, for vector-of-vector fields.
    `state[field]` is the value column; for state vectors, the int64[n] lengths are in `sizes`.
    """

    n_rows: int
    sizes: Mapping[str, np.ndarray]
    n_subs: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    chip: "Chip"
    columns: tuple[np.ndarray, ...]  # the kernel's columns, for counting


@dataclass(frozen=True)
class FieldView:
    """`v.y.size`, `v.rows.n_subs`, `v.bias.value`: the columns of one field."""

    size: np.ndarray | None
    n_subs: np.ndarray | None
    value: np.ndarray | None


class CostView:
    """What a `cycles` method gets as `v`: the CostInput, with fields as attributes as well."""

    def __init__(self, cost_input: CostInput) -> None:
        self.cost_input = cost_input
        self.n_rows, self.sizes = cost_input.n_rows, cost_input.sizes
        self.n_subs, self.state = cost_input.n_subs, cost_input.state
        self.columns = cost_input.columns

    def __getattr__(self, name: str) -> FieldView:
        cost_input = self.__dict__["cost_input"]
        columns = [
            table.get(name) for table in (cost_input.sizes, cost_input.n_subs, cost_input.state)
        ]
        if all(column is None for column in columns):
            raise AttributeError(f"no field {name!r}; " + suggest(name, [*cost_input.sizes]))
        return FieldView(*columns)


class Codelet(Protocol):
    """A codelet that can run and be costed. Implemented for Python and for C++."""

    @property
    def spec(self) -> CodeletSpec: ...

    @property
    def provenance(self) -> Provenance:
        """How far its own cost can be trusted."""
        ...

    @property
    def is_data_dependent(self) -> bool:
        """Whether its cost can only be counted while it runs on real data."""
        ...

    def kernel_address(self, *, has_modes: bool = False, n_workers: int = N_WORKERS) -> int:
        """Address of the native kernel; compiles on first use.

        With `has_modes` it rounds halves as the worker's record says. `n_workers` of the chip share
        a MultiVertex; other kernels are the same for any number.
        """
        ...

    def counted_kernel_address(self, *, has_modes: bool = False, n_workers: int = N_WORKERS) -> int:
        """Address of the kernel that also counts cycles."""
        ...

    def cycles(self, cost_input: CostInput) -> np.ndarray:
        """int64[n] cycles per row, without data; raises MissingPerfEstimate if data-dependent."""
        ...

    def flops(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] flops per row; None if the codelet does not state them."""
        ...

    def field_data_bytes(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] bytes of the machine's vertex in place of state vectors; None: as they are."""
        ...

    def instance_bytes(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] bytes of the machine's vertex itself, in place of fields; None: as they are."""
        ...

    @property
    def strided_lists(self) -> tuple[str, ...]:
        """Lists of vectors that a vertex has by a start, a number and a distance, where it can."""
        ...

    def peak_flops_per_cycle(self, chip: "Chip") -> int:
        """The most flops per cycle a tile can do on the unit and with the types it uses."""
        ...

    def to_dict(self) -> dict[str, object]:
        """A JSON-able, self-contained form that `codelet_from_dict` turns back into a codelet."""
        ...

    def content_hash(self) -> str: ...
