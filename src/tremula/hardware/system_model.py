"""A system as plain numbers: chips in machines, machines in racks, their links, hosts and DRAM."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from tremula.base.errors import InvalidMachineModel
from tremula.hardware.chip_model import Chip
from tremula.hardware.facts import (
    Fact,
    Value,
    changed_facts,
    check_provenance,
    facts_of,
    make_record,
    quantity,
)

# -- links: which there are, which route traffic takes, and how long it takes ----------------------

KINDS = ("IPU-Link", "PCIe", "GW-Link")
_IPU_LINK, _PCIE, _GW_LINK = range(len(KINDS))

Edge = tuple[int, int, int, int]  # node, node, kind, lanes in parallel


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Every directed link of a system, one row each.

    Nodes 0 … n_ipus-1 are chips; a system of several racks has a further node for the gateway of
    each machine. Parallel links between two nodes are one row of several lanes.

    Shapes: all columns [n_links]; `source`, `target`, `n_lanes` int32, `kind` int8 (index into
    KINDS), `gbytes_per_s` float64 (payload), `latency_s` float64.
    """

    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    n_lanes: np.ndarray
    gbytes_per_s: np.ndarray
    latency_s: np.ndarray

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """Traffic on the links: columns as long as the system's `links`.

    `n_bytes` int64 and `link_seconds` float64 per link; `seconds` until all has arrived: the
    busiest link, plus the latency of the longest route used.
    """

    n_bytes: np.ndarray
    link_seconds: np.ndarray
    latency_s: float

    @property
    def seconds(self) -> float:
        return float(self.link_seconds.max(initial=0.0)) + self.latency_s


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """The links of a system and the route from each node to each chip, one link at a time.

    Shapes: `next_link` int32[n_nodes, n_ipus], a row of `links`, or -1 if already there.
    """

    links: Links
    next_link: np.ndarray


@lru_cache(maxsize=64)
def network_of(system: "System") -> Network:
    """The network of a system; cached, since the compiler asks often."""
    links = _links_of(system)
    return Network(links, _next_links(links, system.n_ipus, n_nodes=n_nodes(system)))


def n_nodes(system: "System") -> int:
    """Chips, and gateways if there are several racks."""
    return system.n_ipus + (system.n_machines if system.n_racks > 1 else 0)


def link_path(system: "System", a: int, b: int) -> tuple[int, ...]:
    """The links from chip `a` to chip `b`: rows of `system.links`."""
    for ipu in (a, b):
        if not 0 <= ipu < system.n_ipus:
            raise InvalidMachineModel(
                f"{system.name!r} has no IPU {ipu}: it has {system.n_ipus}.",
                hint=f"use an IPU from 0 to {system.n_ipus - 1}",
            )
    network, path, node = network_of(system), [], a
    while node != b:
        path.append(int(network.next_link[node, b]))
        node = int(network.links.target[path[-1]])
    return tuple(path)


def link_loads(system: "System", bytes_between: np.ndarray) -> LinkLoads:
    """What traffic between chips puts on each link.

    `bytes_between[a, b]`, int64[n_ipus, n_ipus], is sent from chip a to chip b; what a chip sends
    to itself stays on it.
    """
    traffic = _checked_traffic(system, bytes_between)
    network = network_of(system)
    node, goal = np.nonzero(traffic)
    n_bytes = traffic[node, goal]
    loads = np.zeros(len(network.links), np.int64)
    latency_s, longest_s = np.zeros(len(node)), 0.0
    while len(node):
        link = network.next_link[node, goal]
        np.add.at(loads, link, n_bytes)
        latency_s = latency_s + network.links.latency_s[link]
        longest_s = max(longest_s, float(latency_s.max()))
        node = network.links.target[link]
        under_way = node != goal
        node, goal = node[under_way], goal[under_way]
        n_bytes, latency_s = n_bytes[under_way], latency_s[under_way]
    return LinkLoads(loads, loads / (network.links.gbytes_per_s * 1e9), longest_s)


def check_links(system: "System") -> None:
    """Refuse a system that needs more links per chip than its chip has."""
    n_used = np.zeros(n_nodes(system), np.int64)
    for a, b, kind, n_lanes in _edges(system):
        if kind == _IPU_LINK:
            n_used[[a, b]] += n_lanes
    if n_used.max() > system.chip.n_ipu_links:
        raise InvalidMachineModel(
            f"{system.name!r} needs {n_used.max()} IPU-Links on a chip, but "
            f"{system.chip.name!r} has {system.chip.n_ipu_links}.",
            hint="choose another chip, or single(chip, n_ipus), which uses what links there are",
        )


def _checked_traffic(system: "System", bytes_between: np.ndarray) -> np.ndarray:
    given = np.asarray(bytes_between)
    expected = (system.n_ipus, system.n_ipus)
    if given.shape != expected or given.dtype.kind not in "iu" or (given < 0).any():
        raise InvalidMachineModel(
            f"traffic on {system.name!r} must be bytes from chip to chip: whole numbers, zero or "
            f"more, of shape {expected}; got {given.dtype} of shape {given.shape}.",
            hint="row a, column b holds the bytes that chip a sends to chip b",
        )
    traffic = given.astype(np.int64)
    np.fill_diagonal(traffic, 0)
    return traffic


def _edges(system: "System") -> Iterator[Edge]:
    """Every pair of joined nodes once."""
    n_per_rack = system.n_ipus_per_machine * system.n_machines_per_rack
    for first in range(0, system.n_ipus, n_per_rack):
        yield from _rack_edges(system, first, min(first + n_per_rack, system.n_ipus))
    if system.n_racks > 1:
        yield from _gateway_edges(system)


def _rack_edges(system: "System", first: int, end: int) -> Iterator[Edge]:
    """IPU-Links of a rack: rows of two chips, joined in a row, in a machine and along the stack."""
    for ipu in range(first, end - 1, 2):
        yield ipu, ipu + 1, _IPU_LINK, system.n_links_across
    for begin in range(first, end, system.n_ipus_per_machine):
        machine = range(begin, min(begin + system.n_ipus_per_machine, end))
        for a, b in combinations(machine, 2):
            if (a - first) // 2 == (b - first) // 2:
                continue  # a row, joined above
            is_column = (b - a) % 2 == 0
            n_lanes = system.n_links_along if is_column else system.n_links_diagonal
            if n_lanes:
                yield a, b, _IPU_LINK, n_lanes
    for ipu in range(first, end - 2):
        if ipu // system.n_ipus_per_machine != (ipu + 2) // system.n_ipus_per_machine:
            yield ipu, ipu + 2, _IPU_LINK, system.n_links_along
    if system.topology == "torus" and end - first > 4:
        last_row = first + (end - first - 1) // 2 * 2
        for column in range(end - last_row):
            yield last_row + column, first + column, _IPU_LINK, system.n_links_along


def _gateway_edges(system: "System") -> Iterator[Edge]:
    """Each chip to its machine's gateway, and machines of one height in a ring of racks."""
    for ipu in range(system.n_ipus):
        yield ipu, system.n_ipus + ipu // system.n_ipus_per_machine, _PCIE, 1
    n_lanes = max(1, system.n_gateway_links_per_machine // min(2, system.n_racks - 1))
    n_in_rack, n_machines = system.n_machines_per_rack, system.n_machines
    for machine in range(n_machines - n_in_rack):
        a, b = system.n_ipus + machine, system.n_ipus + machine + n_in_rack
        yield a, b, _GW_LINK, n_lanes
    if system.n_racks > 2:
        for last in range((system.n_racks - 1) * n_in_rack, n_machines):
            yield system.n_ipus + last, system.n_ipus + last % n_in_rack, _GW_LINK, n_lanes


def _links_of(system: "System") -> Links:
    """Both directions of every edge, sorted by where they start."""
    edges = np.array(list(_edges(system)), np.int32).reshape(-1, 4)
    rows = np.concatenate([edges, edges[:, [1, 0, 2, 3]]])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    source, target, kind, n_lanes = rows.T.copy()
    chip = system.chip
    rate = np.array(
        [
            chip.ipu_link_gbytes_per_s * chip.ipu_link_efficiency,
            chip.host_link_gbytes_per_s,
            system.gateway_link_gbytes_per_s,
        ]
    )
    latency_s = np.array([chip.ipu_link_latency_s] + 2 * [system.gateway_latency_s])[kind]
    rate = rate[kind] * n_lanes
    return Links(source, target, kind.astype(np.int8), n_lanes, rate, latency_s)


def _next_links(links: Links, n_ipus: int, n_nodes: int) -> np.ndarray:
    """Shortest routes; among equals the destination's number decides, which spreads load."""
    n_hops = _hops(links, n_ipus, n_nodes)
    is_nearer = n_hops[links.target] == n_hops[links.source] - 1  # [n_links, n_ipus]
    start = np.searchsorted(links.source, np.arange(n_nodes + 1))
    goals = np.arange(n_ipus)
    next_link = np.full((n_nodes, n_ipus), -1, np.int32)
    for node in range(n_nodes):
        choices = is_nearer[start[node] : start[node + 1]]
        if not len(choices):
            continue
        rank = np.cumsum(choices, axis=0)  # 1 for the first nearer link, 2 for the second, …
        wanted = goals % np.maximum(rank[-1], 1) + 1
        chosen = np.argmax(choices & (rank == wanted), axis=0)
        next_link[node] = np.where(rank[-1] > 0, start[node] + chosen, -1)
    return next_link


def _hops(links: Links, n_ipus: int, n_nodes: int) -> np.ndarray:
    """int32[n_nodes, n_ipus]: links on the shortest route from each node to each chip."""
    is_joined = np.zeros((n_nodes, n_nodes), np.float32)
    is_joined[links.source, links.target] = 1
    n_hops = np.full((n_nodes, n_ipus), -1, np.int32)
    frontier = np.eye(n_nodes, n_ipus, dtype=bool)
    distance = 0
    while frontier.any():
        n_hops[frontier] = distance
        distance += 1
        frontier = (is_joined @ frontier.astype(np.float32) > 0) & (n_hops < 0)
    return n_hops


# -- systems ---------------------------------------------------------------------------------------

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
        """Every constant of the system itself with unit, standing and source, by name."""
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
        return network_of(self).links

    def link_path(self, a: int, b: int) -> tuple[int, ...]:
        """The links from chip `a` to chip `b`: rows of `links`."""
        return link_path(self, a, b)

    def link_loads(self, bytes_between: np.ndarray) -> LinkLoads:
        """Bytes and seconds on every link, for int64[n_ipus, n_ipus] bytes from chip to chip."""
        return link_loads(self, bytes_between)


def make_system(name: str, chip: Chip, facts: Mapping[str, Fact]) -> System:
    """A system from its chip and one fact for every constant."""
    return make_record(System, name, facts, chip=chip)


def _check_sizes(system: System) -> None:
    n_needed = -(-system.n_ipus // system.n_ipus_per_machine)
    if system.n_machines != n_needed:
        raise InvalidMachineModel(
            f"{system.name!r} has {system.n_ipus} chips in {system.n_machines} machines of "
            f"{system.n_ipus_per_machine}, expected {n_needed} machines.",
            hint=f"set n_machines={n_needed}",
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
