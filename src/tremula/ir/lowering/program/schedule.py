"""How a step is repeated over chips and micro-batches, and what a built program is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tremula.ir.locations import HeldPlace, Phases
from tremula.ir.step import StepSlot
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program


@dataclass(frozen=True)
class Schedule:
    """How often a step's parts run per call, and how gradients are combined."""

    n_iterations: int = 1
    n_accumulation: int = 1
    n_replicas: int = 1
    gradient_scale: float = 1.0  # 1 / (accumulation × all replicas) for the mean
    chip_of_block: tuple[int, ...] = ()
    stage_of_block: tuple[int, ...] = ()  # of a pipeline: the forward stage of each block
    # Of a pipeline: how many iterations lie between two micro-batches at the same stage. 1 is the
    # grouped schedule, 2 the interleaved one, in which chips turn from forward to backward.
    stride: int = 1
    phases: Phases = field(default_factory=Phases)
    waits_for_all: bool = True  # transfers stop every chip; otherwise those that take part
    # Parameters that differ between groups of replicas: (name, size of a group, stride in it).
    groups: tuple[tuple[str, int, int], ...] = ()
    has_running_mean: bool = False  # of micro-batches' gradients, in the rule's type of them

    def group_of(self, parameter: str) -> tuple[int, int]:
        """Size and stride of the groups of replicas that share a parameter."""
        result = {name: (size, stride) for name, size, stride in self.groups}
        return result.get(parameter, (self.n_replicas, 1))

    @property
    def n_chips(self) -> int:
        return max(self.chip_of_block, default=0) + 1

    @property
    def is_pipelined(self) -> bool:
        """Whether stages work on different micro-batches at the same time."""
        return len(set(self.stage_of_block)) > 1


@dataclass
class BuiltProgram:
    """A graph with its program, and the handles under which the host finds things."""

    graph: Graph
    program: Program
    held: dict[tuple[str, int], HeldPlace] = field(default_factory=dict)  # by kind and index
    inputs: list[str] = field(default_factory=list)  # stream handles
    outputs: list[tuple[StepSlot, str]] = field(default_factory=list)
    host_functions: dict[str, Callable] = field(default_factory=dict)  # by handle
