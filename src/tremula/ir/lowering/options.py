"""Choices of the user that change how a step is lowered; loads without the tile compiler."""

from dataclasses import dataclass, field

from tremula.ir.locations import Locations


@dataclass
class LoweringOptions:
    """Choices of the user that change how operations are planned."""

    partials_type: str | None = None  # of products: "half" or "float"
    dithers_convolutions: bool = False  # they begin at tiles that their dimensions choose
    available_memory: dict[int, float] = field(default_factory=dict)  # by chip
    is_training: bool = False
    rounds_stochastically: bool = False  # halves, to one of the two neighbours at random
    has_synthetic_data: bool = False  # zeros on the device instead of streams from and to the host
    locations: Locations = field(default_factory=Locations)  # of what outlives an operation
    # Steps that repeat are one function where that saves this many KiB of a tile; None: never.
    outline_threshold: float | None = 1.0
    n_io_tiles: int = 0  # of each chip, set aside for transfers that overlap with computing
    prefetch_depth: int = 0  # transfers that the host is ahead of the device
    checks_indices: bool = False  # stop at an index out of range, which otherwise reads zeros
    # Gradients of all weights are summed over replicas, or scattered, in one go for each chip.
    merges_all_reduces: bool = False
    merges_reduce_scatters: bool = False
