"""What each link between chips carried, and which of them is the bottleneck."""

from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts

Ints = np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class LinkColumns:
    """Links of the system that carried anything, the busiest first; all columns [n_links].

    `row` int64 of the system's links, `name` in words, `source` and `target` int64 (chips, then
    gateways), `n_bytes` int64 over everything that ran, `busy_seconds` float64 at the link's rate.
    """

    row: Ints
    name: tuple[str, ...]
    source: Ints
    target: Ints
    n_bytes: Ints
    busy_seconds: Ints

    def __len__(self) -> int:
        return len(self.row)

    @property
    def bottleneck(self) -> str:
        """The link that is busy longest, in words; empty if nothing crosses chips."""
        return self.name[0] if len(self) else ""


def link_columns(executable: Executable, costs: StepCosts, executed: Ints) -> LinkColumns:
    """The links that were used when step i ran executed[i] times."""
    system = executable.target.system
    assert system is not None, "a target always gets a system"
    links = system.links
    n_bytes = costs.link_loads.totals(executed, len(links))
    seconds = n_bytes / (links.gbytes_per_s * 1e9)
    used = np.flatnonzero(n_bytes)
    row = used[np.argsort(-seconds[used], kind="stable")]
    return LinkColumns(
        row,
        tuple(system.link_name(int(link)) for link in row),
        links.source[row].astype(np.int64),
        links.target[row].astype(np.int64),
        n_bytes[row],
        seconds[row],
    )
