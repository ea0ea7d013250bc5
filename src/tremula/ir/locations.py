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

    def leaves(self, n_elements: int) -> bool:
        """Whether a tensor of this size is in streaming memory."""
        return self.is_off_chip and n_elements >= max(1, self.least_off_chip)

    def shards(self, n_elements: int) -> bool:
        """Whether replicas share a tensor of this size out between them."""
        return self.is_sharded and n_elements >= max(1, self.least_sharded)


@dataclass(frozen=True)
class Locations:
    """One for each kind of tensor that outlives an operation."""

    weight: Location = field(default_factory=Location)
    state: Location = field(default_factory=Location)  # of the optimiser
    accumulator: Location = field(default_factory=Location)  # sums of gradients
    activation: Location = field(default_factory=Location)  # forward values for the backward pass


class HeldPlace(NamedTuple):
    """Under which name the host finds a held tensor: a tensor's handle, or a remote buffer's."""

    handle: str
    row: int = 0  # of a remote buffer
    n_shards: int = 1  # replica r has the r-th of so many equal parts, the last ones padded
