"""A system as plain numbers: chips in machines, machines in racks, their links, hosts and DRAM."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from tremula.base.errors import InvalidMachineModel
from tremula.hardware.chip_model import Chip
from tremula.hardware.constant_records import (
    Fact,
    Value,
    changed_facts,
    check_provenance,
    facts_of,
    make_record,
    quantity,
)
from tremula.hardware.network import (
    KINDS,
    LinkLoads,
    Links,
    Traffic,
    Wiring,
    edges_of,
    links_of,
    loads_of,
    path_of,
)

TOPOLOGIES = ("direct", "ladder", "torus")

_size = partial(quantity, group="size")
_links = partial(quantity, group="links between chips")
_gateway = partial(quantity, group="gateways, hosts and DRAM")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Chips that work together. Its fields are plain numbers; `facts` says where each comes from.

    Chips stand in rows of two, rows in machines, machines in racks. In a machine all chips are
    joined directly; along a rack the rows form an open `ladder` or, closed at its ends, a `torus`;
    racks are joined by the gateways of their machines.
    """

    name: str
    chip: Chip

    n_ipus: int = _size("chips", "chips of the system")
    n_machines: int = _size("machines", "machines, or cards")
    n_hosts: int = _size("hosts", "host servers")
    n_ipus_per_machine: int = _size("chips", "chips in a machine, or on a card")
    n_machines_per_rack: int = _size("machines", "machines joined by IPU-Links")
    machine_watts: float = _size("W", "power limit of a machine")

    topology: str = _links("", "how the rows of a rack are joined", choices=TOPOLOGIES)
    n_links_across: int = _links("links", "between the two chips of a row")
    n_links_along: int = _links("links", "to the next row, in each direction")
    n_links_diagonal: int = _links("links", "across rows of a machine", may_be_zero=True)
    across_latency_s: float = _links("s", "one hop to the chip beside")

    n_gateways_per_machine: int = _gateway("gateways", "gateways in a machine", may_be_zero=True)
    n_gateway_links_per_machine: int = _gateway("links", "links to other racks", may_be_zero=True)
    gateway_link_gbytes_per_s: float = _gateway("GB/s", "one link, one direction")
    gateway_latency_s: float = _gateway("s", "each link to or from a gateway")
    host_gbytes_per_s_per_machine: float = _gateway("GB/s", "host to machine, one direction")
    n_bytes_dram_per_machine: int = _gateway("B", "streaming memory", may_be_zero=True)
    dram_gbytes_per_s_per_machine: float = _gateway("GB/s", "streaming memory", may_be_zero=True)

    provenance: tuple[Fact, ...] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        check_provenance(self)
        _check_sizes(self)
        check_links(self)

    def __repr__(self) -> str:
        return f"System({self.name!r})"

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Every constant of the system itself with unit, provenance and source, by name."""
        return facts_of(self)

    def replace(
        self, *, name: str | None = None, chip: Chip | None = None, **changes: Value | Fact
    ) -> "System":
        """This system with another chip, or some constants changed."""
        changed = changed_facts(self, changes, is_new=chip not in (None, self.chip))
        facts = {**self.facts, **changed.facts}
        return make_record(System, name or changed.name, facts, chip=chip or self.chip)

    @property
    def n_racks(self) -> int:
        return -(-self.n_machines // self.n_machines_per_rack)

    @property
    def n_gateways(self) -> int:
        return self.n_machines * self.n_gateways_per_machine

    @property
    def has_gateway(self) -> bool:
        """Whether machines have gateways, which hold data of streams ahead of its use."""
        return self.n_gateways_per_machine > 0

    @property
    def watts_per_ipu(self) -> float:
        """The power limit of a chip: its own, or its part of the machine's."""
        return min(self.chip.tdp_watts, self.machine_watts / self.n_ipus_per_machine)

    @property
    def n_tiles(self) -> int:
        return self.n_ipus * self.chip.n_tiles

    @property
    def n_bytes_sram(self) -> int:
        """Memory of all tiles of all chips."""
        return self.n_ipus * self.chip.n_bytes_total

    @property
    def n_bytes_dram(self) -> int:
        return self.n_machines * self.n_bytes_dram_per_machine

    @property
    def host_gbytes_per_s(self) -> float:
        """All hosts to all machines, one direction."""
        return self.n_machines * self.host_gbytes_per_s_per_machine

    @property
    def links(self) -> Links:
        """Every directed link, as columns."""
        return links_of(wiring_of(self))

    def link_path(self, a: int, b: int) -> tuple[int, ...]:
        """The links from chip `a` to chip `b`: rows of `links`."""
        for ipu in (a, b):
            _checked_ipu(self, ipu)
        return path_of(wiring_of(self), a, b)

    def link_loads(self, bytes_between: np.ndarray) -> LinkLoads:
        """Bytes and seconds on every link, for int64[n_ipus, n_ipus] bytes from chip to chip."""
        return self.loads_of(Traffic.between(_checked_traffic(self, bytes_between)))

    def loads_of(self, traffic: Traffic) -> LinkLoads:
        """Bytes and seconds on every link, for traffic as columns."""
        return loads_of(wiring_of(self), traffic)

    def link_name(self, row: int) -> str:
        """A row of `links` in words."""
        return self.links.name(row, self.n_ipus)


@lru_cache(maxsize=64)  # the compiler asks for each step
def wiring_of(system: "System") -> Wiring:
    """What the network of a system is made of."""
    chip = system.chip
    return Wiring(
        n_ipus=system.n_ipus,
        n_ipus_per_machine=system.n_ipus_per_machine,
        n_machines_per_rack=system.n_machines_per_rack,
        topology=system.topology,
        n_links_across=system.n_links_across,
        n_links_along=system.n_links_along,
        n_links_diagonal=system.n_links_diagonal,
        n_gateway_links_per_machine=system.n_gateway_links_per_machine,
        ipu_link_gbytes_per_s=chip.ipu_link_gbytes_per_s * chip.ipu_link_efficiency,
        pcie_gbytes_per_s=chip.host_link_gbytes_per_s,
        gateway_link_gbytes_per_s=system.gateway_link_gbytes_per_s,
        across_latency_s=system.across_latency_s,
        ipu_link_latency_s=chip.ipu_link_latency_s,
        gateway_latency_s=system.gateway_latency_s,
        n_sends_in_flight=chip.n_sends_in_flight,
    )


def make_system(name: str, chip: Chip, facts: Mapping[str, Fact]) -> System:
    """A system from its chip and one fact for every constant."""
    return make_record(System, name, facts, chip=chip)


MAX_IPUS = 1 << 16  # more are a mistake: every program has columns with a row for each


def _check_sizes(system: System) -> None:
    if system.n_ipus > MAX_IPUS:
        raise InvalidMachineModel(
            f"{system.name!r} has {system.n_ipus:,} chips, expected at most {MAX_IPUS:,}.",
            hint="model a part of it",
        )
    n_needed = -(-system.n_ipus // system.n_ipus_per_machine)
    if system.n_machines != n_needed:
        raise InvalidMachineModel(
            f"{system.name!r} has {system.n_ipus} chips in {system.n_machines} machines of "
            f"{system.n_ipus_per_machine}, expected {n_needed} machines.",
            hint=f"set n_machines={n_needed}",
        )
    if system.n_ipus_per_machine > 1 and system.n_ipus_per_machine % 2:
        raise InvalidMachineModel(
            f"{system.name!r} has {system.n_ipus_per_machine} chips in a machine, expected 1 or an "
            "even number.",
            hint="chips stand in rows of two",
        )
    if system.topology == "direct" and system.n_machines > 1:
        raise InvalidMachineModel(
            f"{system.name!r} has topology 'direct' but {system.n_machines} machines.",
            hint="use 'ladder' or 'torus' for more than one machine",
        )
    if system.n_racks > 1 and not (
        system.n_gateways_per_machine and system.n_gateway_links_per_machine
    ):
        raise InvalidMachineModel(
            f"{system.name!r} has {system.n_racks} racks and no gateway links to join them.",
            hint="raise n_machines_per_rack, or set n_gateways_per_machine and "
            "n_gateway_links_per_machine",
        )


def check_links(system: "System") -> None:
    """Refuse a system that needs more links per chip than its chip has."""
    wiring = wiring_of(system)
    n_used = np.zeros(wiring.n_nodes, np.int64)
    for a, b, kind, n_lanes, _ in edges_of(wiring):
        if KINDS[kind] == "IPU-Link":
            n_used[[a, b]] += n_lanes
    if n_used.max() > system.chip.n_ipu_links:
        raise InvalidMachineModel(
            f"{system.name!r} needs {n_used.max()} IPU-Links on a chip, but "
            f"{system.chip.name!r} has {system.chip.n_ipu_links}.",
            hint="choose another chip, or single(chip, n_ipus), which uses what links there are",
        )


def _checked_ipu(system: "System", ipu: int) -> None:
    if not 0 <= ipu < system.n_ipus:
        raise InvalidMachineModel(
            f"{system.name!r} has no IPU {ipu}: it has {system.n_ipus}.",
            hint=f"use an IPU from 0 to {system.n_ipus - 1}",
        )


def _checked_traffic(system: "System", bytes_between: np.ndarray) -> np.ndarray:
    array = np.asarray(bytes_between)
    expected = (system.n_ipus, system.n_ipus)
    if array.shape != expected or array.dtype.kind not in "iu" or (array < 0).any():
        raise InvalidMachineModel(
            f"traffic on {system.name!r} must be bytes from chip to chip: whole numbers, zero or "
            f"more, of shape {expected}; got {array.dtype} of shape {array.shape}.",
            hint="row a, column b holds the bytes that chip a sends to chip b",
        )
    traffic = array.astype(np.int64)
    np.fill_diagonal(traffic, 0)
    return traffic
