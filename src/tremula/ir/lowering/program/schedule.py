"""How a step is repeated over chips and micro-batches, and what a built program is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tremula.base.replica_group import ReplicaGroup
from tremula.ir.locations import HostHandle
from tremula.ir.placement import BlockPlacements
from tremula.ir.repetition import Repetition
from tremula.ir.step import StepSlot

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.poplar.graph import Graph
    from tremula.poplar.programs import Program


@dataclass(frozen=True)
class Schedule(BlockPlacements, Repetition):
    """How often a step's parts run per call, on which chips, and which replicas share weights."""

    # Names of parameters that differ between groups of replicas, with those groups.
    groups: tuple[tuple[str, ReplicaGroup], ...] = ()

    @classmethod
    def of(
        cls,
        repetition: Repetition,
        places: BlockPlacements | None = None,
        groups: tuple[tuple[str, ReplicaGroup], ...] = (),
    ) -> "Schedule":
        """The schedule of a step that is repeated and placed like this."""
        return cls(**vars(repetition), **vars(places or BlockPlacements()), groups=groups)

    def group_of(self, parameter: str) -> ReplicaGroup:
        """The groups of replicas that share a parameter."""
        return dict(self.groups).get(parameter, ReplicaGroup(self.n_replicas))

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

    graph: "Graph"
    program: "Program"
    state_handles: dict[tuple[str, int], HostHandle] = field(
        default_factory=dict
    )  # by kind and index
    inputs: list[str] = field(default_factory=list)  # stream handles
    outputs: list[tuple[StepSlot, str]] = field(default_factory=list)
    host_functions: dict[str, Callable] = field(default_factory=dict)  # by handle
