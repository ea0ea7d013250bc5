"""Where tensors are while nothing computes with them: on chips, in streaming memory, in shards."""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Location:
    """Where the tensors of one kind are; small ones stay whole and on the chip."""

    is_off_chip: bool = False  # in streaming memory, on the chip only around their use
    least_off_chip: int = 2  # elements
    is_sharded: bool = False  # each replica keeps an equal share
    least_sharded: int = 8192  # elements
    uses_io_tiles: bool = False  # tiles set aside for transfers load it while others compute
    stores_on_io_tiles: bool = False  # and store it

    def leaves(self, n_elements: int) -> bool:
        """Whether a tensor of this size is in streaming memory."""
        return self.is_off_chip and n_elements >= max(1, self.least_off_chip)

    def shards(self, n_elements: int) -> bool:
        """Whether a tensor of this size is sharded over replicas."""
        return self.is_sharded and n_elements >= max(1, self.least_sharded)


@dataclass(frozen=True)
class Locations:
    """One for each kind of tensor that outlives an operation."""

    weight: Location = field(default_factory=Location)
    state: Location = field(default_factory=Location)  # of the optimiser
    accumulator: Location = field(default_factory=Location)  # sums of gradients
    activation: Location = field(default_factory=Location)  # forward values for the backward pass


@dataclass(frozen=True)
class Phases:
    """Parts of a step that run one after another, and whether values wait between them elsewhere.

    Backward phases follow the forward ones in reverse. The last one has both directions, unless it
    is followed by a separate backward phase.
    """

    of_block: tuple[int, ...] = ()  # empty: there are none
    leaves_after_forward: bool = False  # values that the backward pass reads leave the chip
    leaves_after_each: bool = False  # so do all that another phase reads
    has_separate_backward: bool = False

    def number(self, block: int | None, *, is_backward: bool) -> int:
        """Of the phase of an operation, in the order in which they run."""
        forward = self.of_block[block] if block is not None else 0
        last = max(self.of_block, default=0)
        return 2 * last + self.has_separate_backward - forward if is_backward else forward


class HostHandle(NamedTuple):
    """How the host addresses a resident tensor: a tensor's handle, or a row of a remote buffer."""

    handle: str
    row: int = 0  # of a remote buffer
    n_shards: int = 1  # replica r has the r-th of n equal parts, the last ones padded
