"""Partitions: cut from an allocation, split into graph compilation domains, joined by links."""

import time
from dataclasses import dataclass

from tremula.hardware import System, system_to_toml
from tremula.system.control.access import Caller, partition_key
from tremula.system.control.errors import (
    ControlError,
    checked_name,
    forbidden,
    not_found,
    taken,
    wrong,
)
from tremula.system.control.inventory import free_ipus, system_of, usable_allocation
from tremula.system.control.placement import checked_size, largest_free, place
from tremula.system.control.routing import TOPOLOGIES, Pair, part_of, route
from tremula.system.control.store import Row, StateStore

ACTIVE, ERROR = "PS_ACTIVE", "PS_ERROR"
SYNC_TYPES = ("c2-compatible", "ipu-pod")


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """What `tremula vipu create partition` asks for."""

    name: str
    size: int
    allocation: str | None = None
    n_gcds: int = 1
    is_reconfigurable: bool = False
    topology: str = "auto"
    first: int | None = None  # the chip to begin at; None: wherever it fits best


def add_partition(store: StateStore, request: PartitionRequest, caller: Caller) -> dict:
    """Cut a partition; raises a `ControlError` if it cannot be."""
    checked_name("partition", request.name)
    checked_size(request.size)
    with store.change():
        if store.row("SELECT 1 FROM partitions WHERE name = ?", request.name):
            raise taken("partition", request.name)
        allocation, cluster = usable_allocation(store, request.allocation, caller)
        _check_domains(store, request, cluster)
        _check_quota(store, request, caller)
        first, routing = _placed(store, request, cluster, allocation)
        return _insert(store, request, caller, allocation, cluster, first, routing)


def _check_domains(store: StateStore, request: PartitionRequest, cluster: str) -> None:
    """Domains are equal powers of two; each is within one IPU-Link domain, a rack."""
    n = request.n_gcds
    if not 1 <= n <= request.size or n & (n - 1):
        raise wrong(
            f"{request.size} IPUs cannot be split into {n} domains.",
            f"use a power of two up to {request.size}",
        )
    if request.is_reconfigurable and n > 1:
        raise wrong("a reconfigurable partition has one domain.", "leave out one of the two")
    if request.topology not in TOPOLOGIES:
        raise wrong(
            f"there is no topology {request.topology[:40]!r}.",
            f"use one of {', '.join(TOPOLOGIES)}",
        )
    system = system_of(store, cluster)
    n_rack = min(system.n_machines_per_rack * system.n_ipus_per_machine, system.n_ipus)
    if request.size > system.n_ipus:
        raise _no_room(request, f"cluster {cluster!r} has {system.n_ipus} IPUs")
    if request.size // n > n_rack:
        raise wrong(
            f"a domain of {request.size // n} IPUs exceeds an IPU-Link domain of {n_rack} IPUs.",
            f"use {request.size // n_rack} domains or more",
        )


def _check_quota(store: StateStore, request: PartitionRequest, caller: Caller) -> None:
    limits = store.row("SELECT max_ipus, max_partitions FROM users WHERE name = ?", caller.name)
    sql = "SELECT count(*), coalesce(sum(size), 0) FROM partitions WHERE owner = ?"
    used = store.row(sql, caller.name)
    if limits is None or used is None:
        raise not_found("user", caller.name)
    max_ipus, max_partitions = limits
    if max_partitions is not None and used[0] + 1 > max_partitions:
        what = f"{caller.name!r} may have {max_partitions} partitions, and has {used[0]}."
        raise ControlError(409, "quota", what, "remove one, or ask for a larger quota")
    if max_ipus is not None and used[1] + request.size > max_ipus:
        what = (
            f"{caller.name!r} may have {max_ipus} IPUs, has {used[1]}, and asks for {request.size}."
        )
        raise ControlError(409, "quota", what, "remove a partition, or ask for a larger quota")


def _placed(
    store: StateStore, request: PartitionRequest, cluster: str, allocation: str
) -> tuple[int, str]:
    """The first chip, and how the chips are joined; blocks that cannot be are passed over."""
    system, is_free = system_of(store, cluster), free_ipus(store, cluster, allocation)
    broken = broken_links(store, cluster)
    n_each = request.size // request.n_gcds
    if request.first is not None:
        inside = is_free[request.first : request.first + request.size]
        if request.first % request.size or len(inside) < request.size or not inside.all():
            raise _no_room(request, f"{request.size} IPUs from {request.first} on are not free")
        is_free[:] = False
        is_free[request.first : request.first + request.size] = True
    failure = None
    while (first := place(is_free, request.size)) is not None:
        try:
            return first, routing_of(
                system, (first, request.size, n_each), request.topology, broken
            )
        except ControlError as error:
            failure = error
            is_free[first : first + request.size] = False
            if not broken:
                break  # all blocks are wired alike, or nearly: one answer is enough
    if failure is not None:
        raise failure
    raise _no_room(request, f"the largest free block of {allocation!r} has {largest_free(is_free)}")


def routing_of(
    system: System, block: tuple[int, int, int], topology: str, broken: frozenset[Pair]
) -> str:
    """How the chips of every domain are joined: the block is (first chip, chips, chips of each)."""
    first, size, n_each = block
    starts = range(first, first + size, n_each)
    result = {route(system, start, n_each, topology, broken) for start in starts}
    return result.pop() if len(result) == 1 else "detour"


def _no_room(request: PartitionRequest, why: str) -> ControlError:
    what = f"there is no room for {request.size} IPUs: {why}."
    return ControlError(409, "no-room", what, "remove a partition, or ask for fewer")


def _insert(
    store: StateStore,
    request: PartitionRequest,
    caller: Caller,
    allocation: str,
    cluster: str,
    first: int,
    routing: str,
) -> dict:
    number = store.add(
        """INSERT INTO partitions (name, cluster, allocation, owner, first, size, n_gcds,
            is_reconfigurable, sync_type, topology, routing, state, created_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        request.name,
        cluster,
        allocation,
        caller.name,
        first,
        request.size,
        request.n_gcds,
        request.is_reconfigurable,
        SYNC_TYPES[0 if request.is_reconfigurable else 1],
        request.topology,
        routing,
        ACTIVE,
        time.time(),
    )
    rows = [(cluster, ipu, number) for ipu in range(first, first + request.size)]
    store.run_many("INSERT INTO partition_ipus VALUES (?, ?, ?)", rows)
    row = store.row("SELECT * FROM partitions WHERE id = ?", number)
    assert row is not None, "it was just inserted"
    return as_table(row)


# -- the others ------------------------------------------------------------------------------------


def find_partition(store: StateStore, name: str, caller: Caller, action: str) -> Row:
    """A partition that a caller may see (`read`), use (`attach`) or change (`partition`)."""
    row = store.row("SELECT * FROM partitions WHERE name = ?", name)
    if row is None:
        raise not_found("partition", name)
    is_own = row["owner"] == caller.name
    if caller.role == "program":
        is_own = row["id"] == caller.partition
    elif caller.role == "viewer":
        is_own = False
    if not (is_own or caller.may("operate") or (action == "read" and caller.role == "viewer")):
        raise forbidden(
            f"partition {name!r} is not yours.", "`tremula vipu list partitions` shows yours"
        )
    return row


def list_partitions(store: StateStore, caller: Caller) -> list[dict]:
    sees_all = caller.may("operate") or caller.role == "viewer"
    sql = "SELECT * FROM partitions WHERE ? OR owner = ? ORDER BY name"
    return [as_table(row) for row in store.rows(sql, sees_all, caller.name)]


def remove_partition(
    store: StateStore, name: str, caller: Caller, *, is_forced: bool = False
) -> None:
    """Free its chips; not while programs hold some, unless forced."""
    with store.change():
        row = find_partition(store, name, caller, "partition")
        n_leases = store.value("SELECT count(*) FROM leases WHERE partition = ?", row["id"])
        if n_leases and not is_forced:
            what = f"{n_leases} programs hold devices of partition {name!r}."
            raise ControlError(409, "in-use", what, "end them, or use --force")
        store.run("DELETE FROM partitions WHERE id = ?", row["id"])


def as_table(row: Row) -> dict:
    """A partition as the API shows it."""
    table = dict(row)
    first, size, n_gcds = row["first"], row["size"], row["n_gcds"]
    n_each = size // n_gcds
    table["is_reconfigurable"] = bool(row["is_reconfigurable"])
    table["gcds"] = [
        {"gcd": g, "ipus": list(range(first + g * n_each, first + (g + 1) * n_each))}
        for g in range(n_gcds)
    ]
    table["sync_groups"] = sync_groups(first, size, n_gcds)
    return table


def sync_groups(first: int, size: int, n_gcds: int) -> list[dict]:
    """Chips that wait for each other: those of a domain (GS1), and those of all domains (GS2)."""
    n_each = size // n_gcds
    of_domains = [
        {"name": f"GS1.{g}", "first": first + g * n_each, "size": n_each} for g in range(n_gcds)
    ]
    return [*of_domains, {"name": "GS2", "first": first, "size": size}]


def ipuof_table(store: StateStore, row: Row, gcd: int) -> dict:
    """What programs need to attach: the file `vipu` writes, without the controller's address."""
    if not 0 <= gcd < row["n_gcds"]:
        raise wrong(
            f"partition {row['name']!r} has {row['n_gcds']} domains, not one numbered {gcd}.",
            f"use 0 to {row['n_gcds'] - 1}",
        )
    n_each = row["size"] // row["n_gcds"]
    first = row["first"] + gcd * n_each
    system = part_of(system_of(store, row["cluster"]), n_each, row["routing"])
    return {
        "partition": row["name"],
        "gcd": gcd,
        "n_gcds": row["n_gcds"],
        "ipus": list(range(first, first + n_each)),
        "is_reconfigurable": bool(row["is_reconfigurable"]),
        "system": system_to_toml(system),
        "key": partition_key(store, row["id"]),
    }


def broken_links(store: StateStore, cluster: str) -> frozenset[Pair]:
    sql = "SELECT a, b FROM faults WHERE kind = 'link' AND cluster = ?"
    return frozenset((a, b) for a, b in store.rows(sql, cluster))
