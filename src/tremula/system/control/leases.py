"""Leases: which program holds which chips of a partition, and until when.

A program that lives says so every few seconds. One that does not, or whose process is gone from
this computer, loses its chips.
"""

import os
import secrets
import socket
import time

from tremula.system.control.access import Caller
from tremula.system.control.errors import ControlError, forbidden, not_found, wrong
from tremula.system.control.partitions import ACTIVE, find_partition
from tremula.system.control.store import Row, StateStore

TTL_S, HEARTBEAT_S = 15.0, 1.0


def add_lease(store: StateStore, caller: Caller, wanted: dict) -> dict:
    """Hold chips of a partition for a process: `wanted` has partition, gcd, ipus, pid, host, …"""
    with store.change():
        row = find_partition(store, wanted["partition"], caller, "attach")
        ipus = _checked_ipus(row, wanted)
        if row["state"] != ACTIVE:
            what = f"partition {row['name']!r} is in state {row['state']}: {row['why']}"
            raise ControlError(409, "broken", what, f"`tremula vipu reset partition {row['name']}`")
        _free_of_the_dead(store, row, ipus)
        id, now = secrets.token_hex(12), time.time()
        texts = wanted["user"][:60], wanted["pid"], wanted["host"][:255], wanted["command"][:200]
        values = id, row["id"], wanted["gcd"], *texts, now, now + TTL_S
        store.run("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
        rows = [(row["cluster"], ipu, id) for ipu in ipus]
        store.run_many("INSERT INTO lease_ipus VALUES (?, ?, ?)", rows)
    return {"id": id, "ipus": ipus, "heartbeat_s": HEARTBEAT_S, "ttl_s": TTL_S}


def _checked_ipus(row: Row, wanted: dict) -> list[int]:
    ipus, gcd = sorted(set(wanted["ipus"])), wanted["gcd"]
    n_each = row["size"] // row["n_gcds"]
    domain = range(row["first"] + gcd * n_each, row["first"] + (gcd + 1) * n_each)
    if not 0 <= gcd < row["n_gcds"] or not ipus or not set(ipus) <= set(domain):
        raise wrong(f"IPUs {ipus[:8]} are not in domain {gcd} of partition {row['name']!r}.")
    if not row["is_reconfigurable"] and len(ipus) != n_each:
        what = f"partition {row['name']!r} is one device of {n_each} IPUs, not {len(ipus)}."
        raise wrong(what, "attach to all of it, or create it with --reconfigurable")
    return ipus


def _free_of_the_dead(store: StateStore, row: Row, ipus: list[int]) -> None:
    """Raise if a live program holds one of the chips; take them back from dead ones."""
    marks = ",".join("?" * len(ipus))
    sql = f"""
        SELECT DISTINCT leases.* FROM lease_ipus JOIN leases ON id = lease
        WHERE cluster = ? AND ipu IN ({marks})"""
    for lease in store.rows(sql, row["cluster"], *ipus):
        if _is_alive(lease, time.time()):
            what = f"process {lease['pid']} on {lease['host']} holds some of IPUs {ipus[:8]}."
            raise ControlError(409, "held", what, "wait, or ask for other devices")
        store.run("DELETE FROM leases WHERE id = ?", lease["id"])


def _is_alive(lease: Row, now: float) -> bool:
    if lease["ends_at"] < now:
        return False
    if lease["host"] != socket.gethostname():
        return True  # its time tells
    try:
        os.kill(lease["pid"], 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def find_lease(store: StateStore, id: str, caller: Caller) -> Row:
    sql = """
        SELECT leases.*, partitions.owner, partitions.cluster, partitions.name AS partition_name
        FROM leases JOIN partitions ON partitions.id = partition WHERE leases.id = ?"""
    row = store.row(sql, id)
    if row is None:
        raise not_found("lease", id)
    is_own = caller.partition == row["partition"] or (
        caller.role != "program" and caller.name == row["owner"]
    )
    if not is_own and not caller.may("operate"):
        raise forbidden("the lease is not yours.")
    return row


def renew_lease(store: StateStore, row: Row) -> list[dict]:
    """The program lives; returns what the machine did to it, each fault once."""
    with store.change():
        store.run("UPDATE leases SET ends_at = ? WHERE id = ?", time.time() + TTL_S, row["id"])
        faults = store.rows("SELECT kind, what FROM lease_faults WHERE lease = ?", row["id"])
    return [dict(fault) for fault in faults]


def remove_lease(store: StateStore, id: str) -> None:
    with store.change():
        store.run("DELETE FROM leases WHERE id = ?", id)


def remove_dead_leases(store: StateStore) -> list[str]:
    """Take chips back from programs that ended without a word; returns their leases."""
    now = time.time()
    dead = [row["id"] for row in store.rows("SELECT * FROM leases") if not _is_alive(row, now)]
    if dead:
        with store.change():
            for id in dead:
                store.run("DELETE FROM leases WHERE id = ?", id)
    return dead


def renew_all_leases(store: StateStore) -> None:
    """After a restart of the controller, which heard no program, all get their time again."""
    with store.change():
        store.run("UPDATE leases SET ends_at = max(ends_at, ?)", time.time() + TTL_S)


def list_leases(store: StateStore, caller: Caller) -> list[dict]:
    sees_all = caller.may("operate") or caller.role == "viewer"
    sql = """
        SELECT leases.id, partitions.name AS partition, partitions.cluster, gcd, user, pid, host,
            command, started_at, (SELECT json_group_array(ipu) FROM lease_ipus
            WHERE lease = leases.id) AS ipus
        FROM leases JOIN partitions ON partitions.id = partition
        WHERE ? OR partitions.owner = ? ORDER BY started_at"""
    rows = [dict(row) for row in store.rows(sql, sees_all, caller.name)]
    for row in rows:
        row["ipus"] = [int(ipu) for ipu in row["ipus"].strip("[]").split(",") if ipu]
    return rows
