"""Seeds of random operations as variables."""

import numpy as np

import popxl


def seed_variable(
    seed: int, replica_grouping: popxl.ReplicaGrouping | None = None
) -> tuple[popxl.Variable, popxl.Tensor]:
    """A variable with a seed of two words for each group of replicas, and the tensor to use.

    Without groups every replica has its own seed. The session reads and writes the first; what
    the program writes to the second, the next run starts with.
    """
    whole: popxl.ReplicaGrouping = popxl.gcg().ir.replica_grouping(group_size=1)
    group = whole if replica_grouping is None else replica_grouping
    seeds = np.asarray(popxl.create_seeds(seed, replicas=group.num_groups))
    variable = popxl.variable(seeds, popxl.uint32, "random_seed", replica_grouping=group)
    return variable, variable
