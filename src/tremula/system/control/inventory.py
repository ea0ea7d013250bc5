"""What there is: clusters of IPU-Machines, an agent for each machine, allocations of machines."""

import hashlib
import json
from functools import lru_cache

import numpy as np

from tremula.base.errors import PoplarError, suggest
from tremula.hardware import System, single, system, system_from_toml, system_to_toml
from tremula.system.control.access import Caller
from tremula.system.control.errors import (
    ControlError,
    checked_name,
    forbidden,
    not_found,
    taken,
    wrong,
)
from tremula.system.control.store import Row, StateStore


@lru_cache(maxsize=16)
def _system(text: str) -> System:
    return system_from_toml(text)


# -- clusters and agents ---------------------------------------------------------------------------


def add_cluster(store: StateStore, name: str, system: System) -> None:
    """A cluster that is a whole system: an agent for each machine, one allocation with them all."""
    checked_name("cluster", name)
    with store.change():
        if store.row("SELECT 1 FROM clusters WHERE name = ?", name):
            raise taken("cluster", name)
        per_machine = system.n_ipus_per_machine
        values = name, system_to_toml(system), system.n_ipus, per_machine, system.topology
        store.run("INSERT INTO clusters VALUES (?, ?, ?, ?, ?)", *values)
        machines = enumerate(_agent(name, i, system.n_machines) for i in range(system.n_machines))
        agents = [(agent, name, i, host, serial) for i, (agent, host, serial) in machines]
        store.run_many("INSERT INTO agents VALUES (?, ?, ?, ?, ?)", agents)
        store.run("INSERT INTO allocations VALUES (?, ?)", name, name)
        rows = [(agent[0], name) for agent in agents]
        store.run_many("INSERT INTO allocation_agents VALUES (?, ?)", rows)


def requested_system(name: str | None, chip: str | None, n_ipus: int | None) -> System:
    """A system by name, or a number of chips joined as Graphcore did."""
    try:
        if name is not None:
            return system(name, chip)
        return single(chip or "bow", n_ipus or 0)
    except PoplarError as error:
        raise wrong(error.what, error.hint) from None


def remove_cluster(store: StateStore, name: str) -> None:
    with store.change():
        system_of(store, name)
        if store.row("SELECT 1 FROM partitions WHERE cluster = ?", name):
            raise ControlError(
                409, "in-use", f"cluster {name!r} has partitions.", "remove them first"
            )
        store.run("DELETE FROM allocations WHERE cluster = ?", name)
        store.run("DELETE FROM agents WHERE cluster = ?", name)
        store.run("DELETE FROM clusters WHERE name = ?", name)


def _agent(cluster: str, place: int, n_machines: int) -> tuple[str, str, str]:
    """Name, address and serial number of a machine's agent."""
    digest = hashlib.sha256(f"{cluster} {place}".encode()).hexdigest()
    serial = f"{int(digest[:12], 16) % 10**14:014}.0203214"
    name = f"{cluster}-ag{place + 1:0{max(2, len(str(n_machines)))}}"
    return name, f"10.1.{1 + place // 250}.{1 + place % 250}", serial


def system_of(store: StateStore, cluster: str) -> System:
    text = store.value("SELECT system FROM clusters WHERE name = ?", cluster)
    if text is None:
        raise not_found("cluster", cluster)
    return _system(text)


def list_clusters(store: StateStore) -> list[dict]:
    sql = """
        SELECT name, n_ipus, n_ipus_per_machine, topology,
            (SELECT count(*) FROM agents WHERE cluster = clusters.name) AS n_agents,
            (SELECT count(*) FROM partition_ipus WHERE cluster = clusters.name) AS n_ipus_used
        FROM clusters ORDER BY name"""
    return [
        {**dict(row), "system": (s := system_of(store, row["name"])).name, "chip": s.chip.name}
        for row in store.rows(sql)
    ]


def list_agents(store: StateStore) -> list[dict]:
    sql = """
        SELECT agents.name, agents.cluster, place, host, serial,
            allocation, faults.id IS NULL AS is_up
        FROM agents LEFT JOIN allocation_agents ON agent = agents.name
        LEFT JOIN faults ON kind = 'agent' AND faults.cluster = agents.cluster AND a = place
        ORDER BY agents.cluster, place"""
    return [{**dict(row), "is_up": bool(row["is_up"])} for row in store.rows(sql)]


# -- allocations -----------------------------------------------------------------------------------


def add_allocation(
    store: StateStore, name: str, cluster: str, agents: list[str], users: list[str]
) -> None:
    """Grant machines of a cluster to users; the cluster's own allocation gives them up."""
    checked_name("allocation", name)
    with store.change():
        system_of(store, cluster)
        if store.row("SELECT 1 FROM allocations WHERE name = ?", name):
            raise taken("allocation", name)
        store.run("INSERT INTO allocations VALUES (?, ?)", name, cluster)
        for agent in agents:
            _move_agent(store, agent, cluster, name)
        for user in users:
            grant(store, name, user)


def _move_agent(store: StateStore, agent: str, cluster: str, allocation: str) -> None:
    row = store.row("SELECT place FROM agents WHERE name = ? AND cluster = ?", agent, cluster)
    if row is None:
        known = [
            r["name"] for r in store.rows("SELECT name FROM agents WHERE cluster = ?", cluster)
        ]
        raise wrong(f"cluster {cluster!r} has no agent {agent[:80]!r}.", suggest(agent[:80], known))
    leased_by = store.value("SELECT allocation FROM allocation_agents WHERE agent = ?", agent)
    if leased_by not in (None, cluster):
        raise ControlError(409, "in-use", f"agent {agent!r} belongs to allocation {leased_by!r}.")
    per = store.value("SELECT n_ipus_per_machine FROM clusters WHERE name = ?", cluster)
    used = store.value(
        "SELECT count(*) FROM partition_ipus WHERE cluster = ? AND ipu >= ? AND ipu < ?",
        cluster,
        row["place"] * per,
        (row["place"] + 1) * per,
    )
    if used:
        raise ControlError(409, "in-use", f"partitions use agent {agent!r}.", "remove them first")
    sql = "INSERT OR REPLACE INTO allocation_agents VALUES (?, ?)"
    store.run(sql, agent, allocation)


def grant(store: StateStore, allocation: str, user: str) -> None:
    with store.change():
        if not store.row("SELECT 1 FROM users WHERE name = ?", user):
            raise not_found("user", user)
        if not store.row("SELECT 1 FROM allocations WHERE name = ?", allocation):
            raise not_found("allocation", allocation)
        store.run("INSERT OR IGNORE INTO allocation_users VALUES (?, ?)", allocation, user)


def remove_allocation(store: StateStore, name: str) -> None:
    """Its machines go back to the cluster's own allocation."""
    with store.change():
        cluster = store.value("SELECT cluster FROM allocations WHERE name = ?", name)
        if cluster is None:
            raise not_found("allocation", name)
        if name == cluster:
            raise ControlError(409, "in-use", "a cluster keeps its own allocation.")
        if store.row("SELECT 1 FROM partitions WHERE allocation = ?", name):
            raise ControlError(
                409, "in-use", f"allocation {name!r} has partitions.", "remove them first"
            )
        sql = "UPDATE allocation_agents SET allocation = ? WHERE allocation = ?"
        store.run(sql, cluster, name)
        store.run("DELETE FROM allocations WHERE name = ?", name)


def list_allocations(store: StateStore, caller: Caller) -> list[dict]:
    result = []
    for row in store.rows("SELECT name, cluster FROM allocations ORDER BY name"):
        if not caller.may("operate") and not may_use(store, row["name"], caller):
            continue
        free = free_ipus(store, row["cluster"], row["name"])
        sql = "SELECT agent FROM allocation_agents WHERE allocation = ? ORDER BY agent"
        agents = [r["agent"] for r in store.rows(sql, row["name"])]
        sql = "SELECT user FROM allocation_users WHERE allocation = ? ORDER BY user"
        users = [r["user"] for r in store.rows(sql, row["name"])]
        per = store.value("SELECT n_ipus_per_machine FROM clusters WHERE name = ?", row["cluster"])
        sizes = {"n_ipus": len(agents) * per, "n_ipus_free": int(free.sum())}
        result.append({**dict(row), "agents": agents, "users": users, **sizes})
    return result


def may_use(store: StateStore, allocation: str, caller: Caller) -> bool:
    """All users may use a cluster's own allocation, others only those they were granted to."""
    if caller.may("operate"):
        return True
    row = store.row("SELECT cluster FROM allocations WHERE name = ?", allocation)
    if row is None or row["cluster"] == allocation:
        return row is not None
    sql = "SELECT 1 FROM allocation_users WHERE allocation = ? AND user = ?"
    return store.row(sql, allocation, caller.name) is not None


def usable_allocation(store: StateStore, name: str | None, caller: Caller) -> tuple[str, str]:
    """The allocation requested, or the only one there is; and its cluster."""
    if name is None:
        names = [r["name"] for r in store.rows("SELECT name FROM allocations ORDER BY name")]
        usable = [n for n in names if may_use(store, n, caller)]
        if len(usable) != 1:
            raise wrong(
                f"there are {len(usable)} allocations to choose from.", "say which: --allocation"
            )
        (name,) = usable
    row = store.row("SELECT name, cluster FROM allocations WHERE name = ?", name)
    if row is None:
        raise not_found("allocation", name)
    if not may_use(store, row["name"], caller):
        raise forbidden(f"allocation {row['name']!r} was not granted to {caller.name!r}.")
    return row["name"], row["cluster"]


# -- devices ---------------------------------------------------------------------------------------


def free_ipus(store: StateStore, cluster: str, allocation: str) -> np.ndarray:
    """bool[n_ipus]: chips of an allocation that work and are in no partition."""
    row = store.row("SELECT n_ipus, n_ipus_per_machine FROM clusters WHERE name = ?", cluster)
    if row is None:
        raise not_found("cluster", cluster)
    n_ipus, per = row
    is_ours = np.zeros(-(-n_ipus // per), bool)
    sql = """
        SELECT group_concat(place) FROM allocation_agents JOIN agents ON name = agent
        WHERE allocation = ?"""
    is_ours[_numbers(store.value(sql, allocation))] = True
    sql = "SELECT group_concat(a) FROM faults WHERE kind = 'agent' AND cluster = ?"
    is_ours[_numbers(store.value(sql, cluster))] = False
    is_free = np.repeat(is_ours, per)[:n_ipus]
    sql = "SELECT group_concat(first || ',' || (first + size)) FROM partitions WHERE cluster = ?"
    ends = _numbers(store.value(sql, cluster)).reshape(-1, 2)
    edges = np.bincount(ends[:, 0], minlength=n_ipus + 1)
    edges -= np.bincount(ends[:, 1], minlength=n_ipus + 1)
    is_free[np.cumsum(edges)[:n_ipus] > 0] = False
    sql = "SELECT group_concat(a) FROM faults WHERE kind = 'parity' AND cluster = ?"
    is_free[_numbers(store.value(sql, cluster))] = False
    return is_free


def _numbers(text: str | None) -> np.ndarray:
    """Numbers that SQLite joined with commas: thousands of rows as one."""
    return np.fromstring(text or "", np.int64, sep=",")


def devices_json(store: StateStore, caller: Caller, cluster: str | None = None) -> str:
    """All chips as a JSON text, put together from parts, since there may be ten thousand.

    Others' partitions are shown as "·" to those who may not see them.
    """
    where = " WHERE name = ?" if cluster is not None else ""
    of = [cluster] if cluster is not None else []
    result = store.rows(f"SELECT * FROM clusters{where} ORDER BY name", *of)
    if cluster is not None and not result:
        raise not_found("cluster", cluster)
    parts = []
    for row in result:
        fixed = _fixed_parts(row["name"], row["n_ipus"], row["n_ipus_per_machine"])
        parts += map(str.__add__, fixed, _changing_parts(store, caller, row))
    return f"[{','.join(parts)}]"


@lru_cache(maxsize=16)
def _fixed_parts(cluster: str, n_ipus: int, per: int) -> list[str]:
    """The first half of each chip's JSON: where it is, which never changes."""
    n_machines = -(-n_ipus // per)
    machines = [_agent(cluster, place, n_machines) for place in range(n_machines)]
    return [
        f'{{"cluster":"{cluster}","ipu":{ipu},"agent":"{name}","place":{ipu % per},'
        f'"host":"{host}","serial":"{serial}",'
        for ipu in range(n_ipus)
        for name, host, serial in [machines[ipu // per]]
    ]


def _changing_parts(store: StateStore, caller: Caller, cluster: Row) -> list[str]:
    """The other half: the partition, the lease and the faults of each chip."""
    name, n_ipus, per = cluster["name"], cluster["n_ipus"], cluster["n_ipus_per_machine"]
    sees_all = caller.may("operate") or caller.role == "viewer"
    leased = store.rows("SELECT ipu, lease FROM lease_ipus WHERE cluster = ?", name)
    leased_by: dict[int, str] = {row["ipu"]: row["lease"] for row in leased}
    broken = _faults_by_chip(store, name, n_ipus, per)
    parts = [_changing(None, None, None)] * n_ipus
    shown: dict[int, tuple[str, bool]] = {}
    for row in store.rows("SELECT * FROM partitions WHERE cluster = ?", name):
        is_seen = sees_all or row["owner"] == caller.name
        label = row["name"] if is_seen else "·"
        first, end = row["first"], row["first"] + row["size"]
        parts[first:end] = [_changing(label, None, None)] * row["size"]
        if leased_by or broken:
            shown |= dict.fromkeys(range(first, end), (label, is_seen))
    for ipu in leased_by.keys() | broken.keys():
        label, is_seen = shown.get(ipu, (None, False))
        parts[ipu] = _changing(label, leased_by.get(ipu) if is_seen else None, broken.get(ipu))
    return parts


def _changing(partition: str | None, lease: str | None, fault: str | None) -> str:
    return json.dumps({"partition": partition, "lease": lease, "fault": fault})[1:]


def _faults_by_chip(store: StateStore, cluster: str, n_ipus: int, per: int) -> dict[int, str]:
    result: dict[int, list[str]] = {}
    for kind, a, b in store.rows("SELECT kind, a, b FROM faults WHERE cluster = ?", cluster):
        is_agent = kind == "agent"
        ipus = range(a * per, min(n_ipus, (a + 1) * per)) if is_agent else {a, b}
        for ipu in ipus:
            result.setdefault(ipu, []).append(kind)
    return {ipu: ",".join(kinds) for ipu, kinds in result.items()}


def devices(store: StateStore, caller: Caller, cluster: str | None = None) -> list[dict]:
    return json.loads(devices_json(store, caller, cluster))
