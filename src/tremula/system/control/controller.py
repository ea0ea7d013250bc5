"""The controller: every operation, who may do it, and its line in the audit log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tremula.hardware import System
from tremula.system.control import access, audit, faults, inventory, leases, partitions
from tremula.system.control.access import Caller
from tremula.system.control.errors import ControlError
from tremula.system.control.store import StateStore
from tremula.system.control.telemetry import ChipColumns, Telemetry

_MEASURES = ("watts", "die_celsius", "board_celsius", "utilisation", "session", "link_errors")


def monitor_tables(controller: "Controller", shown: list[dict]) -> dict:
    """Partitions, their chips with what is measured, and the programs on them."""
    store, operator = controller.store, Caller("controller", "operator")
    names = {row["name"] for row in shown}
    programs = [row for row in leases.list_leases(store, operator) if row["partition"] in names]
    ipus = []
    for cluster in sorted({row["cluster"] for row in shown}):
        columns = controller.columns(cluster)
        columns.warm()
        chip = columns.chip
        for device in inventory.devices(store, operator, cluster):
            if device["partition"] in names:
                i = device["ipu"]
                measured = {name: float(getattr(columns, name)[i]) for name in _MEASURES}
                about = {"chip": chip.name, "arch": chip.arch, "clock_hz": chip.clock_hz}
                ipus.append({**device, **about, **measured})
    return {"partitions": shown, "ipus": ipus, "processes": programs}


class Controller:
    """State and telemetry of clusters. The first argument of each method is its caller."""

    def __init__(self, path: Path | str):
        self.store = StateStore(path)
        self.admin_key = access.start_access(self.store)  # None unless the state is new
        self.telemetry = Telemetry()
        leases.renew_all_leases(self.store)

    def authenticate(self, key: str | None) -> Caller:
        return access.authenticate(self.store, key)

    @contextmanager
    def logged(self, caller: Caller, action: str, subject: str) -> Iterator[None]:
        """A change and its line in the log, both or neither; a rejected one has its line, too."""
        try:
            with self.store.change():
                yield
                audit.log(self.store, caller.name, action, subject)
        except ControlError as error:
            self.refused(caller.name, action, subject, error)
            raise

    def refused(self, user: str, action: str, subject: str, error: ControlError) -> None:
        audit.log(self.store, user, action, subject, f"refused: {error.code}")

    # -- clusters, allocations, users --------------------------------------------------------------

    def add_cluster(self, caller: Caller, name: str, system: System) -> None:
        with self.logged(caller, "create cluster", name):
            caller.need("administer")
            inventory.add_cluster(self.store, name, system)

    def remove_cluster(self, caller: Caller, name: str) -> None:
        with self.logged(caller, "remove cluster", name):
            caller.need("administer")
            inventory.remove_cluster(self.store, name)

    def add_allocation(
        self, caller: Caller, name: str, cluster: str, agents: list[str], users: list[str]
    ) -> None:
        with self.logged(caller, "create allocation", name):
            caller.need("administer")
            inventory.add_allocation(self.store, name, cluster, agents, users)

    def remove_allocation(self, caller: Caller, name: str) -> None:
        with self.logged(caller, "remove allocation", name):
            caller.need("administer")
            inventory.remove_allocation(self.store, name)

    def grant(self, caller: Caller, allocation: str, user: str) -> None:
        with self.logged(caller, "grant allocation", f"{allocation} to {user}"):
            caller.need("administer")
            inventory.grant(self.store, allocation, user)

    def add_user(
        self,
        caller: Caller,
        name: str,
        role: str,
        max_ipus: int | None = None,
        max_partitions: int | None = None,
    ) -> str:
        with self.logged(caller, "create user", name):
            caller.need("administer")
            return access.add_user(self.store, name, role, max_ipus, max_partitions)

    def new_key(self, caller: Caller, name: str) -> str:
        with self.logged(caller, "new key", name):
            if caller.name != name or caller.role == "program":
                caller.need("administer")
            return access.new_key(self.store, name)

    def remove_user(self, caller: Caller, name: str) -> None:
        with self.logged(caller, "remove user", name):
            caller.need("administer")
            access.remove_user(self.store, name)

    def users(self, caller: Caller) -> list[dict]:
        self._check(caller, "administer", "list users")
        return access.list_users(self.store)

    def audit(self, caller: Caller, n: int, outcome: str | None = None) -> list[dict]:
        self._check(caller, "administer", "read the audit log")
        return audit.entries(self.store, n, outcome)

    # -- what there is -----------------------------------------------------------------------------

    def clusters(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list clusters")
        return inventory.list_clusters(self.store)

    def agents(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list agents")
        return inventory.list_agents(self.store)

    def allocations(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list allocations")
        return inventory.list_allocations(self.store, caller)

    def devices_json(self, caller: Caller, cluster: str | None) -> str:
        self._check(caller, "read", "list devices")
        return inventory.devices_json(self.store, caller, cluster)

    # -- partitions --------------------------------------------------------------------------------

    def add_partition(self, caller: Caller, request: partitions.PartitionRequest) -> dict:
        with self.logged(caller, "create partition", request.name):
            caller.need("partition")
            return partitions.add_partition(self.store, request, caller)

    def remove_partition(self, caller: Caller, name: str, *, is_forced: bool = False) -> None:
        with self.logged(caller, "remove partition", name):
            caller.need("partition")
            partitions.remove_partition(self.store, name, caller, is_forced=is_forced)

    def reset_partition(self, caller: Caller, name: str) -> None:
        with self.logged(caller, "reset partition", name):
            caller.need("partition")
            row = partitions.find_partition(self.store, name, caller, "partition")
            faults.reset_partition(self.store, row)

    def partition(self, caller: Caller, name: str) -> dict:
        with self._errors_logged(caller, "get partition", name):
            row = partitions.find_partition(self.store, name, caller, "read")
            return partitions.as_table(row)

    def partitions(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list partitions")
        return partitions.list_partitions(self.store, caller)

    def ipuof(self, caller: Caller, name: str, gcd: int) -> dict:
        with self._errors_logged(caller, "get config", name):
            row = partitions.find_partition(self.store, name, caller, "attach")
            return partitions.ipuof_table(self.store, row, gcd)

    # -- programs ----------------------------------------------------------------------------------

    def add_lease(self, caller: Caller, wanted: dict) -> dict:
        with self.logged(caller, "attach", str(wanted["partition"])):
            lease = leases.add_lease(self.store, caller, wanted)
        self.telemetry.attached(lease["id"])
        return lease

    def beat(self, caller: Caller, id: str, counters: dict[str, float]) -> list[dict]:
        """A program lives and has done so much; returns the faults it has met."""
        row = leases.find_lease(self.store, id, caller)
        result = leases.renew_lease(self.store, row)
        ipus = self._ipus(id)
        self.telemetry.record_beat(self.columns(row["cluster"]), id, ipus, counters)
        return result

    def remove_lease(self, caller: Caller, id: str) -> None:
        row = leases.find_lease(self.store, id, caller)
        ipus = self._ipus(id)
        with self.logged(caller, "detach", row["partition_name"]):
            leases.remove_lease(self.store, id)
        self.telemetry.gone(self.columns(row["cluster"]), id, ipus)

    def leases(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list processes")
        return leases.list_leases(self.store, caller)

    def take_back(self) -> None:
        """Free what dead programs hold; runs every second."""
        leased = {
            row["id"]: (row["cluster"], self._ipus(row["id"]))
            for row in self.store.rows(
                "SELECT leases.id, cluster FROM leases JOIN partitions ON partitions.id = partition"
            )
        }
        for id in leases.remove_dead_leases(self.store):
            cluster, ipus = leased[id]
            self.telemetry.gone(self.columns(cluster), id, ipus)
            audit.log(self.store, "controller", "take devices back", f"lease {id} of {cluster}")

    def _ipus(self, lease: str) -> list[int]:
        sql = "SELECT ipu FROM lease_ipus WHERE lease = ?"
        return [row["ipu"] for row in self.store.rows(sql, lease)]

    # -- faults ------------------------------------------------------------------------------------

    def add_fault(self, caller: Caller, kind: str, cluster: str, a: int, b: int | None) -> dict:
        with self.logged(caller, "inject fault", f"{kind} {a} {'' if b is None else b}".strip()):
            caller.need("operate")
            made = faults.add_fault(self.store, kind, cluster, a, b)
        columns = self.columns(cluster)
        if kind == "link":
            columns.link_errors[[made["a"], made["b"]]] += 1
        elif kind == "parity":
            columns.parity_errors[made["a"]] += 1
        return made

    def clear_fault(self, caller: Caller, number: int) -> None:
        with self.logged(caller, "clear fault", str(number)):
            caller.need("operate")
            faults.clear_fault(self.store, number)

    def faults(self, caller: Caller) -> list[dict]:
        self._check(caller, "read", "list faults")
        return faults.list_faults(self.store)

    def monitor(self, caller: Caller, partition: str | None) -> dict:
        """What the device tools show of one partition, or of all that a caller may see."""
        with self._errors_logged(caller, "monitor", partition or ""):
            if partition is None:
                caller.need("read")
                return monitor_tables(self, partitions.list_partitions(self.store, caller))
            row = partitions.find_partition(self.store, partition, caller, "attach")
            return monitor_tables(self, [partitions.as_table(row)])

    # -- telemetry ---------------------------------------------------------------------------------

    def columns(self, cluster: str) -> ChipColumns:
        system = inventory.system_of(self.store, cluster)
        return self.telemetry.columns(cluster, system.chip, system.n_ipus)

    def close(self) -> None:
        self.store.close()

    # -- errors ------------------------------------------------------------------------------------

    def _check(self, caller: Caller, action: str, what: str) -> None:
        with self._errors_logged(caller, what, ""):
            caller.need(action)

    @contextmanager
    def _errors_logged(self, caller: Caller, action: str, subject: str) -> Iterator[None]:
        try:
            yield
        except ControlError as error:
            self.refused(caller.name, action, subject, error)
            raise
