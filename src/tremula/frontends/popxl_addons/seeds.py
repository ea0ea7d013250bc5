"""Seeds of random operations as variables."""

import numpy as np

import popxl


def seed_variable(
    seed: int,
    replica_grouping: popxl.ReplicaGrouping | None = None,
    name: str = "seed",
) -> tuple[popxl.Variable, popxl.Tensor]:
    """A variable with a seed of two words for each group of replicas, and a copy to split.

    The variable keeps what the next run begins with, if the program writes it.
    """
    n_groups = replica_grouping.num_groups if replica_grouping else 1
    words = np.random.default_rng(seed).integers(0, 2**32, (n_groups, 2), dtype=np.uint32)
    data = words if n_groups > 1 else words[0]
    variable = popxl.variable(data, popxl.uint32, name, replica_grouping=replica_grouping)
    return variable, variable
