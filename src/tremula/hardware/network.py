"""The network of a system: its links, the way that traffic takes, and how long it takes.

Chips stand in rows of two, rows in machines, machines in racks. A way is found from the places of
its two ends, hop by hop and for all traffic at once, so it costs the same in a pod of 16 chips and
in a hall of 10,000: no table of all pairs is ever made. docs/network.md describes the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

KINDS = ("IPU-Link", "PCIe", "GW-Link")
_IPU_LINK, _PCIE, _GW_LINK = range(len(KINDS))

Ints = np.ndarray
Edge = tuple[int, int, int, int, bool]  # node, node, kind, lanes in parallel, joins a row


@dataclass(frozen=True, slots=True)
class Wiring:
    """What the network of a system is made of; see the fields of `System` and `Chip`."""

    n_ipus: int
    n_ipus_per_machine: int
    n_machines_per_rack: int
    topology: str
    n_links_across: int
    n_links_along: int
    n_links_diagonal: int
    n_gateway_links_per_machine: int
    ipu_link_gbytes_per_s: float  # payload of one link
    pcie_gbytes_per_s: float
    gateway_link_gbytes_per_s: float
    across_latency_s: float
    ipu_link_latency_s: float
    gateway_latency_s: float
    n_sends_in_flight: int

    @property
    def n_machines(self) -> int:
        return -(-self.n_ipus // self.n_ipus_per_machine)

    @property
    def n_racks(self) -> int:
        return -(-self.n_machines // self.n_machines_per_rack)

    @property
    def n_ipus_per_rack(self) -> int:
        return self.n_ipus_per_machine * self.n_machines_per_rack

    @property
    def n_nodes(self) -> int:
        """Chips, and gateways if there are several racks."""
        return self.n_ipus + (self.n_machines if self.n_racks > 1 else 0)

    def is_closed(self, n_ipus: int) -> bool:
        """Whether the rows of a rack of n chips form a ring."""
        return self.topology == "torus" and n_ipus > 4 and n_ipus % 2 == 0


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Every directed link of a system, one row each.

    Nodes 0 … n_ipus-1 are chips; a system of several racks has a further node for the gateway of
    each machine. Parallel links between two nodes are one row of several lanes.

    Shapes: all columns [n_links]; `source`, `target`, `n_lanes` int32, `kind` int8 (index into
    KINDS), `gbytes_per_s` float64 (payload), `latency_s` float64.
    """

    source: Ints
    target: Ints
    kind: Ints
    n_lanes: Ints
    gbytes_per_s: Ints
    latency_s: Ints

    def __len__(self) -> int:
        return len(self.source)

    def name(self, row: int, n_ipus: int) -> str:
        """A link in words: what it joins, and how fast it is."""
        ends = [
            f"chip {node}" if node < n_ipus else f"gateway {node - n_ipus}"
            for node in (int(self.source[row]), int(self.target[row]))
        ]
        kind, rate = KINDS[int(self.kind[row])], float(self.gbytes_per_s[row])
        return f"{kind} {ends[0]} → {ends[1]} ({rate:.3g} GB/s)"


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What chips send each other: int64 columns, one row for each pair of chips.

    `n_sends` counts messages: each waits for its turn. 0 leaves turns out of the account.
    """

    source: Ints
    target: Ints
    n_bytes: Ints
    n_sends: Ints

    @classmethod
    def between(cls, n_bytes: Ints, n_sends: Ints | None = None) -> "Traffic":
        """From tables [chips, chips]: row a, column b is what chip a sends to chip b."""
        source, target = np.nonzero(n_bytes)
        off = source != target
        source, target = source[off], target[off]
        sends = np.zeros(len(source), np.int64) if n_sends is None else n_sends[source, target]
        return cls(source, target, n_bytes[source, target].astype(np.int64), sends)


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """Traffic on the links: columns as long as the system's `links`.

    `n_bytes` int64 and `link_seconds` float64 per link; `turn_seconds` float64 per chip: how long
    its tiles take turns in sending; `latency_s` of the longest way used.
    """

    n_bytes: Ints
    link_seconds: Ints
    turn_seconds: Ints
    latency_s: float

    @property
    def seconds(self) -> float:
        """Until all has arrived: the busiest link, or chip, and the latency of the longest way."""
        busiest = max(self.link_seconds.max(initial=0.0), self.turn_seconds.max(initial=0.0))
        return float(busiest) + self.latency_s

    @property
    def busiest_link(self) -> int:
        """The row of the link that takes longest; -1 if nothing is sent."""
        return int(np.argmax(self.link_seconds)) if self.n_bytes.any() else -1


@lru_cache(maxsize=64)
def links_of(wiring: Wiring) -> Links:
    """Both directions of every edge, sorted by where they start; cached, as it is needed often."""
    edges = np.array(list(edges_of(wiring)), np.int32).reshape(-1, 5)
    rows = np.concatenate([edges, edges[:, [1, 0, 2, 3, 4]]])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    source, target, kind, n_lanes, is_row = rows.T.copy()
    rate = np.array(
        [wiring.ipu_link_gbytes_per_s, wiring.pcie_gbytes_per_s, wiring.gateway_link_gbytes_per_s]
    )[kind]
    latency_s = np.array([wiring.ipu_link_latency_s] + 2 * [wiring.gateway_latency_s])[kind]
    latency_s = np.where(is_row, wiring.across_latency_s, latency_s)
    return Links(source, target, kind.astype(np.int8), n_lanes, rate * n_lanes, latency_s)


def path_of(wiring: Wiring, a: int, b: int) -> tuple[int, ...]:
    """The links from chip a to chip b."""
    links, node, path = links_of(wiring), np.array([a]), []
    while node[0] != b:
        link = _link_rows(wiring, node, next_nodes(wiring, node, np.array([b])))
        path.append(int(link[0]))
        node = links.target[link].astype(np.int64)
    return tuple(path)


def loads_of(wiring: Wiring, traffic: Traffic) -> LinkLoads:
    """What traffic puts on each link, and how long the tiles of each chip take turns.

    A message to another chip holds one of `n_sends_in_flight` places of its chip until it has
    arrived, hence many short messages take as long as their paths do.
    """
    links = links_of(wiring)
    source, target = (ends.astype(np.int64) for ends in (traffic.source, traffic.target))
    row, link, latency_s = _ways(wiring, source.tobytes(), target.tobytes())
    n_bytes = np.zeros(len(links), np.int64)
    np.add.at(n_bytes, link, traffic.n_bytes[row])
    held_s = np.bincount(source, traffic.n_sends * latency_s, minlength=wiring.n_ipus)
    seconds = n_bytes / (links.gbytes_per_s * 1e9)
    longest = float(latency_s.max(initial=0.0))
    return LinkLoads(n_bytes, seconds, held_s / wiring.n_sends_in_flight, longest)


@lru_cache(
    maxsize=128
)  # rounds of a collective, and layers of a model, send between the same pairs
def _ways(wiring: Wiring, sources: bytes, targets: bytes) -> tuple[Ints, Ints, Ints]:
    """The rows of traffic and the links they use, a pair for each hop; latencies of all rows."""
    links = links_of(wiring)
    node, target = (np.frombuffer(ends, np.int64) for ends in (sources, targets))
    latency_s = np.zeros(len(node))
    under_way = np.flatnonzero(node != target)
    node = node[under_way]
    rows, used = [under_way[:0]], [under_way[:0]]
    while len(under_way):
        goal = target[under_way]
        link = _link_rows(wiring, node, next_nodes(wiring, node, goal))
        rows.append(under_way)
        used.append(link)
        latency_s[under_way] += links.latency_s[link]
        node = links.target[link].astype(np.int64)
        goes_on = node != goal
        under_way, node = under_way[goes_on], node[goes_on]
    return np.concatenate(rows), np.concatenate(used), latency_s


def _link_rows(wiring: Wiring, node: Ints, following: Ints) -> Ints:
    return np.searchsorted(_keys_of(wiring), node * wiring.n_nodes + following)


@lru_cache(maxsize=64)
def _keys_of(wiring: Wiring) -> Ints:
    links = links_of(wiring)
    return links.source.astype(np.int64) * wiring.n_nodes + links.target


# -- which links there are -------------------------------------------------------------------------


def edges_of(wiring: Wiring) -> Iterator[Edge]:
    """Every pair of joined nodes once."""
    for first in range(0, wiring.n_ipus, wiring.n_ipus_per_rack):
        yield from _rack_edges(wiring, first, min(first + wiring.n_ipus_per_rack, wiring.n_ipus))
    if wiring.n_racks > 1:
        yield from _gateway_edges(wiring)


def _rack_edges(wiring: Wiring, first: int, end: int) -> Iterator[Edge]:
    """IPU-Links of a rack: rows of two chips, joined in a row, in a machine and along the stack."""
    per_machine = wiring.n_ipus_per_machine
    for ipu in range(first, end - 1, 2):
        yield ipu, ipu + 1, _IPU_LINK, wiring.n_links_across, True
    for begin in range(first, end, per_machine):
        machine = range(begin, min(begin + per_machine, end))
        for a, b in combinations(machine, 2):
            if (a - first) // 2 == (b - first) // 2:
                continue  # a row, joined above
            is_column = (b - a) % 2 == 0
            n_lanes = wiring.n_links_along if is_column else wiring.n_links_diagonal
            if n_lanes:
                yield a, b, _IPU_LINK, n_lanes, False
    for ipu in range(first, end - 2):
        if ipu // per_machine != (ipu + 2) // per_machine:
            yield ipu, ipu + 2, _IPU_LINK, wiring.n_links_along, False
    if wiring.is_closed(end - first):
        for column in range(2):
            yield end - 2 + column, first + column, _IPU_LINK, wiring.n_links_along, False


def _gateway_edges(wiring: Wiring) -> Iterator[Edge]:
    """Each chip to its machine's gateway, and machines of one height in a ring of racks."""
    for ipu in range(wiring.n_ipus):
        yield ipu, wiring.n_ipus + ipu // wiring.n_ipus_per_machine, _PCIE, 1, False
    n_racks, n_in_rack = wiring.n_racks, wiring.n_machines_per_rack
    n_lanes = max(1, wiring.n_gateway_links_per_machine // min(2, n_racks - 1))
    for machine in range(wiring.n_machines - n_in_rack):
        a = wiring.n_ipus + machine
        yield a, a + n_in_rack, _GW_LINK, n_lanes, False
    if n_racks > 2:
        for last in range((n_racks - 1) * n_in_rack, wiring.n_machines):
            yield wiring.n_ipus + last, wiring.n_ipus + last % n_in_rack, _GW_LINK, n_lanes, False


# -- which way traffic takes -----------------------------------------------------------------------


def next_nodes(wiring: Wiring, node: Ints, goal: Ints) -> Ints:
    """int64[n]: the next node on the way of each `node` to its `goal`, a chip; never itself."""
    if wiring.n_racks == 1:
        return _next_in_rack(wiring, node, goal)
    is_chip = node < wiring.n_ipus
    following = np.empty_like(node)
    following[is_chip] = _next_of_chips(wiring, node[is_chip], goal[is_chip])
    gateway = node[~is_chip] - wiring.n_ipus
    following[~is_chip] = _next_of_gateways(wiring, gateway, goal[~is_chip])
    return following


def _next_of_chips(wiring: Wiring, node: Ints, goal: Ints) -> Ints:
    """In its rack; else to the height of the goal's machine, and there up to the gateway.

    A last rack that is not full may lack that height: its chips change racks first.
    """
    n_rack, per_machine = wiring.n_ipus_per_rack, wiring.n_ipus_per_machine
    abroad = node // n_rack != goal // n_rack
    counterpart = node // n_rack * n_rack + goal % n_rack
    is_there = counterpart < wiring.n_ipus
    is_level = node // per_machine == counterpart // per_machine
    goes_up = abroad & (is_level | ~is_there)
    nearer = np.where(abroad & is_there, counterpart, goal)
    following = wiring.n_ipus + node // per_machine
    stays = ~goes_up
    following[stays] = _next_in_rack(wiring, node[stays], nearer[stays])
    return following


def _next_of_gateways(wiring: Wiring, gateway: Ints, goal: Ints) -> Ints:
    """Round the racks the shorter way, then down: to the goal, or to a chip of this height."""
    n_in_rack, n_racks = wiring.n_machines_per_rack, wiring.n_racks
    per_machine = wiring.n_ipus_per_machine
    rack, height = gateway // n_in_rack, gateway % n_in_rack
    distance = goal // wiring.n_ipus_per_rack - rack
    n_in_last = wiring.n_machines - (n_racks - 1) * n_in_rack
    forward = _goes_forward(distance, n_racks, (n_racks > 2) & (height < n_in_last), goal)
    step = np.where(forward, 1, -1)
    beside = wiring.n_ipus + (rack + step) % n_racks * n_in_rack + height
    entrance = gateway * per_machine + np.minimum(goal % 2, per_machine - 1)
    down = np.where(goal // per_machine == gateway, goal, entrance)
    return np.where(distance == 0, down, beside)


def _goes_forward(distance: Ints, n: int, is_ring: Ints | bool, goal: Ints) -> Ints:
    """Whether the shorter way to something `distance` places on is upwards; ties by the goal."""
    ahead = distance % n
    shorter = (ahead < n - ahead) | ((ahead == n - ahead) & (goal // 2 % 2 == 0))
    return np.where(is_ring, shorter, distance > 0)


def _next_in_rack(wiring: Wiring, node: Ints, goal: Ints) -> Ints:
    """Between chips of a rack: to the goal's column first, then from row to row.

    Within a machine every chip reaches every other at once, so a diagonal link there saves the
    hop to the other column, if the way passes one.
    """
    if not len(node):
        return node
    first = node // wiring.n_ipus_per_rack * wiring.n_ipus_per_rack
    n_chips = np.minimum(wiring.n_ipus - first, wiring.n_ipus_per_rack)
    row, column = np.divmod(node - first, 2)
    goal_row, goal_column = np.divmod(goal - first, 2)
    rows_in_machine = max(1, wiring.n_ipus_per_machine // 2)
    has_diagonals = wiring.n_links_diagonal > 0 and rows_in_machine > 1
    n_rows = -(-n_chips // 2)
    is_ring = (wiring.topology == "torus") & (n_chips > 4) & (n_chips % 2 == 0)
    forward = np.where(
        is_ring, _around(row, goal_row, n_rows, goal), goal_row > row
    )  # fmt: skip
    machine, goal_machine = row // rows_in_machine, goal_row // rows_in_machine
    is_home = machine == goal_machine
    top = np.minimum((machine + 1) * rows_in_machine, n_rows) - 1
    way_out = np.where(forward, top, machine * rows_in_machine)
    way_in = (row + np.where(forward, 1, -1)) % n_rows
    passes_diagonal = has_diagonals & (
        is_home
        | (row != way_out)
        | (way_in // rows_in_machine != goal_machine)
        | (way_in != goal_row)
    )
    changes = column != goal_column
    next_row = np.where(is_home, goal_row, np.where(row != way_out, way_out, way_in))
    is_inside = is_home | (row != way_out)
    next_column = np.where(is_inside & has_diagonals, goal_column, column)
    is_missing = 2 * next_row + next_column >= n_chips
    has_partner = 2 * row + goal_column < n_chips  # a last row may have one chip alone
    crosses = changes & has_partner & (~passes_diagonal | is_missing | (row == goal_row))
    following = first + 2 * next_row + next_column
    return np.where(crosses, first + 2 * row + goal_column, following)


def _around(row: Ints, goal_row: Ints, n_rows: Ints, goal: Ints) -> Ints:
    ahead = (goal_row - row) % n_rows
    return (ahead < n_rows - ahead) | ((ahead == n_rows - ahead) & (goal % 2 == 0))
