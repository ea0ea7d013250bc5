"""How the chips of a partition reach each other: ring, mesh or torus, over links that work.

Chips stand in rows of two. A *mesh* joins the chips of each row and each row with the next; a
*torus* also joins the last row with the first; a *ring* goes up one column and down the other. If
a link is broken, a *detour* over others will do, as long as every chip reaches every other.
"""

from collections.abc import Iterable
from functools import lru_cache

from tremula.hardware import System
from tremula.system.control.errors import ControlError, wrong

TOPOLOGIES = ("auto", "ring", "mesh", "torus")
Pair = tuple[int, int]


def route(system: System, first: int, size: int, topology: str, broken: frozenset[Pair]) -> str:
    """How the chips [first, first + size) are joined: a topology, "detour", or "none" for one chip.

    Raises a `ControlError` if they cannot be joined as asked, or at all.
    """
    if topology not in TOPOLOGIES:
        raise wrong(f"there is no topology {topology!r}.", f"use one of {', '.join(TOPOLOGIES)}")
    if size == 1:
        return "none"
    links = _links(system)
    wanted = ("torus", "mesh") if topology == "auto" else (topology,)
    for name in wanted:
        if name == "torus" and topology == "auto" and size <= 4:
            continue  # the same links as a mesh
        needed = edges(name, first, size)
        if needed <= links and not needed & broken:
            return name
    is_wired = topology == "auto" or edges(topology, first, size) <= links
    if is_wired and is_joined(range(first, first + size), _inside(links, first, size) - broken):
        return "detour"
    raise ControlError(
        409,
        "no-route",
        f"IPUs {first} to {first + size - 1} of {system.name} cannot be joined as a "
        f"{'mesh' if topology == 'auto' else topology}.",
        "ask for another topology, or repair the links: `tremula vipu list faults`",
    )


def edges(topology: str, first: int, size: int) -> set[Pair]:
    """The links that a topology needs, each as (lower chip, higher chip)."""
    last = first + size
    across = {(a, a + 1) for a in range(first, last, 2)}
    along = {(a, a + 2) for a in range(first, last - 2)}
    if topology == "ring":
        return {(first, first + 1), (last - 2, last - 1)} | along
    closing = {(first, last - 2), (first + 1, last - 1)} if size > 4 else set()
    return across | along | (closing if topology == "torus" else set())


def _inside(links: frozenset[Pair], first: int, size: int) -> set[Pair]:
    return {(a, b) for a, b in links if first <= a and b < first + size}


@lru_cache(maxsize=8)
def _links(system: System) -> frozenset[Pair]:
    """IPU-Links between chips, as the machine is wired: each as (lower chip, higher chip)."""
    links, n = system.links, system.n_ipus
    is_ipu_link = (links.kind == 0) & (links.source < links.target) & (links.target < n)
    ends = links.source[is_ipu_link].tolist(), links.target[is_ipu_link].tolist()
    return frozenset(zip(*ends, strict=True))


def is_link(system: System, a: int, b: int) -> bool:
    return (min(a, b), max(a, b)) in _links(system)


def is_joined(chips: Iterable[int], links: Iterable[Pair]) -> bool:
    """Whether every chip reaches every other."""
    group = {chip: chip for chip in chips}

    def root(chip: int) -> int:
        while group[chip] != chip:
            group[chip] = chip = group[group[chip]]
        return chip

    for a, b in links:
        group[root(a)] = root(b)
    return len({root(chip) for chip in group}) == 1


def part_of(system: System, n_ipus: int, routing: str) -> System:
    """Some chips of a system as a separate machine, for programs."""
    n_machines = -(-n_ipus // system.n_ipus_per_machine)
    along = "torus" if routing == "torus" else "ladder"
    return system.replace(
        name=f"{n_ipus} IPUs of {system.name}",
        n_ipus=n_ipus,
        n_machines=n_machines,
        n_hosts=1,
        topology="direct" if n_machines == 1 else along,
    )
