"""Metrics in Prometheus' format: chips, partitions, agents, programs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from tremula.system.control import faults, inventory
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.control.partitions import ACTIVE, ERROR, list_partitions
from tremula.system.control.telemetry import ChipColumns

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SELF = Caller("exporter", "viewer")
_STATES = (ACTIVE, ERROR)
Value = Callable[[ChipColumns], np.ndarray]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of chips: with a label more, a value for each of its values."""

    kind: str
    name: str
    help: str
    values: dict[str, Value]
    label: str = ""


def _gauge(name: str, help: str, value: Value) -> Family:
    return Family("gauge", name, help, {"": value})


def _counter(name: str, help: str, value: Value) -> Family:
    return Family("counter", name, help, {"": value})


def _all(columns: ChipColumns, value: float) -> np.ndarray:
    return np.full(columns.n, value)


_FAMILIES = (
    _gauge("ipu_power_watts", "Power that a chip draws", lambda c: c.watts),
    _gauge("ipu_die_temperature_celsius", "Modelled heat of a die", lambda c: c.die_celsius),
    _gauge("ipu_board_temperature_celsius", "Modelled heat of a board", lambda c: c.board_celsius),
    _gauge("ipu_clock_hertz", "Clock of the tiles", lambda c: _all(c, c.chip.clock_hz)),
    Family(
        "gauge",
        "ipu_utilisation_ratio",
        "Part of the time in which a program runs: lately, or since it attached",
        {"total": lambda c: c.utilisation, "session": lambda c: c.session},
        "scope",
    ),
    Family(
        "gauge",
        "ipu_tile_memory_bytes",
        "Memory of the fullest tile",
        {"used": lambda c: c.tile_bytes, "max": lambda c: _all(c, c.chip.n_bytes_per_tile)},
        "kind",
    ),
    _counter("ipu_busy_seconds", "Time in which a program ran", lambda c: c.counters["busy_s"]),
    _counter("ipu_cycles", "Modelled cycles", lambda c: c.counters["cycles"]),
    _counter("ipu_energy_joules", "Energy of programs", lambda c: c.counters["joules"]),
    _counter("ipu_host_bytes", "Bytes from and to hosts", lambda c: c.counters["host_bytes"]),
    _counter("ipu_exchange_bytes", "Bytes between tiles", lambda c: c.counters["exchange_bytes"]),
    _counter("ipu_link_bytes", "Bytes between chips", lambda c: c.counters["link_bytes"]),
    _counter("ipu_link_correctable_errors", "Errors of IPU-Links", lambda c: c.link_errors),
    _counter("ipu_parity_errors", "Parity errors of tile memory", lambda c: c.parity_errors),
)


def scrape(controller: Controller) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Collector(controller))
    return "\n".join([*_chip_lines(controller), ""]).encode() + generate_latest(registry)


class _Collector(Collector):
    """Metrics of the controller; those of chips are too many for the library's way."""

    def __init__(self, controller: Controller):
        self._controller = controller

    def collect(self) -> Iterable[Metric]:
        yield from _vipu_metrics(self._controller)

    def describe(self) -> Iterable[Metric]:
        return ()  # or the registry would collect once to learn the names


def _chip_lines(controller: Controller) -> Iterator[str]:
    """Lines of all chips. Their labels are made once; no name in them needs to be escaped."""
    names = [row["name"] for row in inventory.list_clusters(controller.store)]
    clusters = [(_labels(controller, name), controller.columns(name)) for name in names]
    for _, columns in clusters:
        columns.warm()
    for family in _FAMILIES:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}"
        for of_value, value in family.values.items():
            more = f',{family.label}="{of_value}"' if family.label else ""
            for labels, columns in clusters:
                numbers = value(columns).tolist()
                for label, number in zip(labels, numbers, strict=True):
                    yield f"{name}{{{label}{more}}} {number}"


def _labels(controller: Controller, cluster: str) -> list[str]:
    return [
        f'cluster="{cluster}",ipum="{d["agent"]}",ipu="{d["ipu"]}",serial="{d["serial"]}",'
        f'partition="{d["partition"] or ""}"'
        for d in inventory.devices(controller.store, _SELF, cluster)
    ]


def _vipu_metrics(controller: Controller) -> Iterator[Metric]:
    store = controller.store
    state = GaugeMetricFamily(
        "vipu_partition_state",
        "1 for the state that a partition is in",
        labels=["partition", "state"],
    )
    size = GaugeMetricFamily("vipu_partition_ipus", "IPUs of a partition", labels=["partition"])
    for row in list_partitions(store, _SELF):
        size.add_metric([row["name"]], row["size"])
        for name in _STATES:
            state.add_metric([row["name"], name], float(row["state"] == name))
    yield state
    yield size
    allocated = GaugeMetricFamily(
        "vipu_allocation_ipus", "IPUs of an allocation", labels=["allocation", "state"]
    )
    for row in inventory.list_allocations(store, Caller("exporter", "operator")):
        allocated.add_metric([row["name"], "free"], row["n_ipus_free"])
        allocated.add_metric([row["name"], "used"], row["n_ipus"] - row["n_ipus_free"])
    yield allocated
    up = GaugeMetricFamily("vipu_agent_up", "1 if a host agent answers", labels=["cluster", "ipum"])
    for row in inventory.list_agents(store):
        up.add_metric([row["cluster"] or "", row["name"]], float(row["is_up"]))
    yield up
    down = GaugeMetricFamily("vipu_faults", "Faults that last", labels=["kind"])
    result = [row["kind"] for row in faults.list_faults(store)]
    for kind in ("link", "parity", "agent"):
        down.add_metric([kind], result.count(kind))
    yield down
    yield _processes(controller)


def _processes(controller: Controller) -> Metric:
    """Programs; their command lines stay inside, as labels would keep them for ever."""
    family = GaugeMetricFamily(
        "ipu_process_info",
        "A program that holds IPUs: how many",
        labels=["partition", "pid", "user"],
    )
    for row in controller.leases(_SELF):
        family.add_metric([row["partition"], str(row["pid"]), row["user"]], len(row["ipus"]))
    return family
