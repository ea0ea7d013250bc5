"""The index of this process among several, from the environment of PopRun or torchrun."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tremula.base.tracing import POPDIST, span

_POPRUN_MARK = "POPDIST_NUM_TOTAL_REPLICAS"
_TORCHRUN_MARKS = ("RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Instance:
    """This process among those that train together; the defaults are those of a single process."""

    index: int = 0
    local_index: int = 0
    n_instances: int = 1
    n_local_replicas: int = 1
    n_total_replicas: int = 1
    n_ipus_per_replica: int | None = None  # None: not set
    replica_index_offset: int = 0


def isPopdistEnvSet() -> bool:  # noqa: N802
    """Whether PopRun or torchrun started this process."""
    return _POPRUN_MARK in os.environ or all(mark in os.environ for mark in _TORCHRUN_MARKS)


def this_instance() -> Instance:
    """This process, as the environment describes it."""
    if _POPRUN_MARK in os.environ:
        return _from_poprun()
    return _from_torchrun() if isPopdistEnvSet() else Instance()


def _from_poprun() -> Instance:
    n_total = _whole(_POPRUN_MARK, 1)
    n_local = _whole("POPDIST_NUM_LOCAL_REPLICAS", n_total)
    offset = _whole("POPDIST_REPLICA_INDEX_OFFSET", 0)
    index = _whole("OMPI_COMM_WORLD_RANK", offset // n_local)
    return Instance(
        index=index,
        local_index=_whole("POPDIST_LOCAL_INSTANCE_INDEX", index),
        n_instances=_whole("OMPI_COMM_WORLD_SIZE", max(1, n_total // n_local)),
        n_local_replicas=n_local,
        n_total_replicas=n_total,
        n_ipus_per_replica=_whole("POPDIST_NUM_IPUS_PER_REPLICA", 1),
        replica_index_offset=offset,
    )


def _from_torchrun() -> Instance:
    index, n_instances = _whole("RANK", 0), _whole("WORLD_SIZE", 1)
    n_local = _whole("POPDIST_NUM_LOCAL_REPLICAS", 1)
    has_size = "POPDIST_NUM_IPUS_PER_REPLICA" in os.environ
    return Instance(
        index=index,
        local_index=_whole("LOCAL_RANK", index),
        n_instances=n_instances,
        n_local_replicas=n_local,
        n_total_replicas=n_local * n_instances,
        n_ipus_per_replica=_whole("POPDIST_NUM_IPUS_PER_REPLICA", 1) if has_size else None,
        replica_index_offset=index * n_local,
    )


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(
            f"the environment variable {name} must be a whole number, got {text!r}"
        ) from None


def getInstanceIndex() -> int:  # noqa: N802
    """The number of this process."""
    return this_instance().index


def getLocalInstanceIndex() -> int:  # noqa: N802
    """The number of this process among those of this computer."""
    return this_instance().local_index


def getNumInstances() -> int:  # noqa: N802
    """The number of processes."""
    return this_instance().n_instances


def getNumTotalReplicas() -> int:  # noqa: N802
    """The number of replicas of all processes together."""
    return this_instance().n_total_replicas


def getNumLocalReplicas() -> int:  # noqa: N802
    """The number of replicas of this process."""
    return this_instance().n_local_replicas


def getNumIpusPerReplica() -> int:  # noqa: N802
    """The number of chips of a replica."""
    return this_instance().n_ipus_per_replica or 1


def getReplicaIndexOffset() -> int:  # noqa: N802
    """The number of this process's first replica among all."""
    return this_instance().replica_index_offset


def init(timeout: timedelta | None = None) -> None:
    """Connect the processes; does nothing in a single process."""
    import torch.distributed as dist  # here, so that `import popdist` stays fast

    from tremula.ir.host.programs.distributed import join_process_group

    if getNumInstances() == 1 or dist.is_initialized():
        return
    if "MASTER_ADDR" not in os.environ:
        raise RuntimeError(
            f"{getNumInstances()} processes were started, but the environment does not say where "
            "they meet (MASTER_ADDR is not set). Start them with torchrun."
        )
    instance = this_instance()
    rank, size = instance.index, instance.n_instances
    join_process_group("gloo", rank=rank, world_size=size, timeout=timeout)


def finalize() -> None:
    """Disconnect from the other processes."""
    from tremula.ir.host.programs.distributed import leave_process_group

    leave_process_group()


def synchronize() -> None:
    """Wait for all processes."""
    import torch.distributed as dist

    if getNumInstances() > 1:
        init()
        with span(POPDIST, "synchronize"):
            dist.barrier()


def execute_on_instances(
    instances: Iterable[int],
    function: Callable[..., Any],
    *args,
    **kwargs,
) -> Any:  # noqa: ANN401
    """Call a function in the processes with these indices; others return None."""
    return function(*args, **kwargs) if getInstanceIndex() in set(instances) else None
