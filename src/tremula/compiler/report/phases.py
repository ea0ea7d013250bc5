"""The five phases of a chip's time, and what steps take of each."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # readers of reports want the names alone
    from tremula.compiler.passes.cost import StepCosts

Ints = np.ndarray

# Between tiles of a chip, between chips, with the host or its memory: three kinds of transfer.
PHASES = ("compute", "exchange", "links", "host", "sync")


def step_phases(costs: "StepCosts", compute: Ints | None = None) -> Ints:
    """int64[n_steps, n_chips, 5]: one execution of each step; 0 on chips that take no part.

    `compute` are the cycles of steps that were counted, if they are known better than from costs.
    """
    on_chip = costs.exchange - costs.link_exchange - costs.host_exchange
    computing = costs.compute if compute is None else compute
    parts = (computing, on_chip, costs.link_exchange, costs.host_exchange, costs.sync)
    return np.stack(parts, axis=2) * costs.takes_part[:, :, None]
