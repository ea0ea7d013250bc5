"""Where the blocks of a step run: their chips, and their stages or phases."""

from dataclasses import dataclass, field

from tremula.ir.locations import Phases


@dataclass(frozen=True)
class Places:
    """The chip and stage of each block, in the order in which operations met them."""

    chip_of_block: tuple[int, ...] = ()
    stage_of_block: tuple[int, ...] = ()  # of a pipeline: the forward stage; empty without one
    # Of a pipeline: how many iterations are between two micro-batches at the same stage. 1 is the
    # grouped schedule, 2 the interleaved one, in which chips alternate forward and backward.
    stride: int = 1
    phases: Phases = field(default_factory=Phases)
    waits_for_all: bool = True  # transfers stop every chip; otherwise those that take part
