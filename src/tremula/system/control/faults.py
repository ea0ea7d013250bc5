"""Faults that are injected: a link down, a parity error, a reset, a host agent gone.

Programs on broken devices are notified (see `tremula.poplar.partition`), partitions find another
route or become unusable, and new partitions avoid them, until the fault is cleared or the partition
is reset.
"""

import time

from tremula.hardware import System
from tremula.system.control.errors import ControlError, not_found, wrong
from tremula.system.control.inventory import system_of
from tremula.system.control.partitions import ACTIVE, ERROR, broken_links, routing_of
from tremula.system.control.routing import is_link
from tremula.system.control.store import Row, StateStore

KINDS = ("link", "parity", "reset", "agent")


def add_fault(store: StateStore, kind: str, cluster: str, a: int, b: int | None = None) -> dict:
    """Break something: link a–b, IPU a (parity, reset), or the agent of machine a."""
    with store.change():
        system = system_of(store, cluster)
        a, b, what = _checked(system, kind, a, b)
        sql = "SELECT * FROM faults WHERE kind = ? AND cluster = ? AND a = ? AND b = ?"
        known = store.row(sql, kind, cluster, a, b)
        if known is not None:
            return dict(known)
        number = 0
        if kind != "reset":  # is over at once; the others last
            number = store.add(
                "INSERT INTO faults (kind, cluster, a, b, what, made_at) VALUES (?, ?, ?, ?, ?, ?)",
                kind,
                cluster,
                a,
                b,
                what,
                time.time(),
            )
        _tell_programs(store, kind, cluster, _ipus_of(system, kind, a, b), what)
        settle_partitions(store, cluster)
    return {"id": number, "kind": kind, "cluster": cluster, "a": a, "b": b, "what": what}


def _checked(system: System, kind: str, a: int, b: int | None) -> tuple[int, int, str]:
    if kind not in KINDS:
        raise wrong(f"there is no fault {kind[:40]!r}.", f"use one of {', '.join(KINDS)}")
    limit = system.n_machines if kind == "agent" else system.n_ipus
    if not 0 <= a < limit or (b is not None and not 0 <= b < limit):
        raise wrong(f"{system.name} has {limit} of them, counted from 0; got {a}.")
    if kind == "link":
        if b is None or not is_link(system, a, b):
            raise wrong(f"no IPU-Link joins IPU {a} and {b}.", "chips stand in rows of two")
        a, b = min(a, b), max(a, b)
        return a, b, f"the IPU-Link between IPU {a} and {b} is down"
    whats = {
        "parity": f"a parity error in the memory of IPU {a}",
        "reset": f"IPU {a} was reset",
        "agent": f"the host agent of machine {a} is gone",
    }
    return a, a, whats[kind]


def _ipus_of(system: System, kind: str, a: int, b: int) -> list[int]:
    per = system.n_ipus_per_machine
    if kind == "agent":
        return list(range(a * per, min((a + 1) * per, system.n_ipus)))
    return [a, b] if kind == "link" else [a]


def _tell_programs(store: StateStore, kind: str, cluster: str, ipus: list[int], what: str) -> None:
    """Leases that hold such a chip; a link matters to those that hold both its ends."""
    marks = ",".join("?" * len(ipus))
    sql = f"""
        SELECT lease FROM lease_ipus WHERE cluster = ? AND ipu IN ({marks})
        GROUP BY lease HAVING count(*) >= ?"""
    n_needed = 2 if kind == "link" else 1
    for row in store.rows(sql, cluster, *ipus, n_needed):
        store.run("INSERT INTO lease_faults VALUES (?, ?, ?)", row["lease"], kind, what)


def settle_partitions(store: StateStore, cluster: str) -> None:
    """Give every partition of a cluster the state that the faults of now leave it."""
    system, broken = system_of(store, cluster), broken_links(store, cluster)
    for row in store.rows("SELECT * FROM partitions WHERE cluster = ?", cluster):
        why, routing = _chip_fault(store, row, system.n_ipus_per_machine), row["routing"]
        block = row["first"], row["size"], row["size"] // row["n_gcds"]
        try:
            routing = routing_of(system, block, row["topology"], broken)
        except ControlError as error:
            why = why or error.what
        state = ERROR if why else ACTIVE
        sql = "UPDATE partitions SET state = ?, why = ?, routing = ? WHERE id = ?"
        store.run(sql, state, why, routing, row["id"])


def _chip_fault(store: StateStore, row: Row, n_ipus_per_machine: int) -> str:
    sql = """
        SELECT what FROM faults WHERE cluster = ? AND (
            (kind = 'parity' AND a >= ? AND a < ?) OR (kind = 'agent' AND a BETWEEN ? AND ?))"""
    first, end, per = row["first"], row["first"] + row["size"], n_ipus_per_machine
    result = store.value(sql, row["cluster"], first, end, first // per, (end - 1) // per)
    return result or ""


def clear_fault(store: StateStore, number: int) -> None:
    with store.change():
        cluster = store.value("SELECT cluster FROM faults WHERE id = ?", number)
        if cluster is None:
            raise not_found("fault", number)
        store.run("DELETE FROM faults WHERE id = ?", number)
        settle_partitions(store, cluster)


def reset_partition(store: StateStore, row: Row) -> None:
    """Reset its chips: parity errors are cleared, programs on it are notified and lose them."""
    with store.change():
        sql = "DELETE FROM faults WHERE kind = 'parity' AND cluster = ? AND a >= ? AND a < ?"
        store.run(sql, row["cluster"], row["first"], row["first"] + row["size"])
        store.run("DELETE FROM leases WHERE partition = ?", row["id"])
        settle_partitions(store, row["cluster"])


def list_faults(store: StateStore) -> list[dict]:
    return [dict(row) for row in store.rows("SELECT * FROM faults ORDER BY id")]
