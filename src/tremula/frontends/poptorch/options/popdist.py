"""Options of one of several processes; the launcher sets replicas and process numbers."""

from typing import NoReturn

from tremula.frontends.poptorch.instances import this_instance
from tremula.frontends.poptorch.options.groups import _DistributedOptions
from tremula.frontends.poptorch.options.options import Options as PoptorchOptions


def _reject(name: str) -> NoReturn:
    raise RuntimeError(
        f"Cannot call `{name}` with popdist.poptorch.Options: it was "
        "decided when the processes were started."
    )


class _PopdistDistributedOptions(_DistributedOptions):
    """Which process this is; only the environment decides."""

    def _read_environment(self) -> None:
        instance = this_instance()
        self.set(
            distributed_process_id=instance.index, num_distributed_processes=instance.n_instances
        )

    def disable(self) -> NoReturn:
        """Not possible here."""
        _reject("Distributed.disable")

    def setEnvVarNames(self, *_args, **_kwargs) -> NoReturn:  # noqa: N802
        """Not possible here."""
        _reject("Distributed.setEnvVarNames")

    def configureProcessId(self, *_args, **_kwargs) -> NoReturn:  # noqa: N802
        """Not possible here."""
        _reject("Distributed.configureProcessId")


class Options(PoptorchOptions):
    """`poptorch.Options` for one of several processes that train together."""

    def __init__(self, ipus_per_replica: int | None = None):
        super().__init__()
        instance = this_instance()
        started_for = instance.n_ipus_per_replica
        if None not in (ipus_per_replica, started_for) and ipus_per_replica != started_for:
            raise ValueError(
                f"ipus_per_replica is {ipus_per_replica}, but the processes were started for "
                f"{started_for} IPUs per replica."
            )
        self._distributed = _PopdistDistributedOptions()
        self.set(replication_factor=instance.n_local_replicas)

    def useIpuId(self, *_args, **_kwargs) -> NoReturn:  # noqa: N802
        """Not possible here."""
        _reject("useIpuId")

    def replicationFactor(self, *_args, **_kwargs) -> NoReturn:  # noqa: N802
        """Not possible here."""
        _reject("replicationFactor")
