"""How the modelled machine computes: rounding, exceptions, and the seeds of its workers."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class MachineState:
    """Set by programs; survives between runs until the engine is loaded again."""

    seeds: np.ndarray  # uint32[n_replicas, n_tiles, n_workers, 4]
    flags: dict[str, bool] = field(default_factory=dict)

    def update(self, values: dict[str, object]) -> None:
        self.flags.update({name: bool(value) for name, value in values.items()})

    @property
    def checks_results(self) -> bool:
        """True if some floating-point exception is enabled."""
        return any(self.flags.get(name) for name in ("inv", "div0", "oflo"))


def initial_state(n_replicas: int, n_tiles: int, n_workers: int, seed: int) -> MachineState:
    """Seeds drawn from one number; every worker of every replica gets its own."""
    generator = np.random.Generator(np.random.PCG64(seed))
    shape = (n_replicas, n_tiles, n_workers, 4)
    return MachineState(generator.integers(0, 2**32, shape, np.uint32))
