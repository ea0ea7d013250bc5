"""Bytes that each step puts on each link between chips, as columns."""

from dataclasses import dataclass

import numpy as np

from tremula.compiler.file.codec import record
from tremula.hardware import LinkLoads

Ints = np.ndarray


@record
@dataclass(frozen=True, slots=True)
class StepLinkLoads:
    """The links of the system that steps use; steps that are alike share a row.

    `row_of_step` int64[n_steps], -1 for steps that stay on their chips. Row r uses
    `link[start[r] : start[r + 1]]`, rows of the system's links, for `n_bytes` each, every replica's
    traffic included.
    """

    row_of_step: Ints
    start: Ints
    link: Ints
    n_bytes: Ints

    def totals(self, n_times: Ints, n_links: int) -> Ints:
        """int64[n_links]: bytes on every link when step i runs n_times[i] times."""
        uses = self.row_of_step >= 0
        times = np.zeros(len(self.start) - 1, np.int64)
        np.add.at(times, self.row_of_step[uses], n_times[uses])
        total = np.zeros(n_links, np.int64)
        np.add.at(total, self.link, self.n_bytes * np.repeat(times, np.diff(self.start)))
        return total


class LinkLoadRows:
    """Collects the loads of steps."""

    def __init__(self, n_steps: int):
        self.row_of_step = np.full(n_steps, -1, np.int64)
        self.rows: list[tuple[Ints, Ints]] = []

    def add(self, step: int, loads: LinkLoads) -> None:
        """A step sends; what it has sent before, on the way in, is added."""
        link = np.flatnonzero(loads.n_bytes)
        n_bytes = loads.n_bytes[link]
        earlier = int(self.row_of_step[step])
        if earlier >= 0:
            link = np.concatenate((self.rows[earlier][0], link))
            n_bytes = np.concatenate((self.rows[earlier][1], n_bytes))
        self.row_of_step[step] = len(self.rows)
        self.rows.append((link, n_bytes))

    def finish(self) -> StepLinkLoads:
        start = np.cumsum([0, *(len(link) for link, _ in self.rows)])
        nothing = np.empty(0, np.int64)
        link, n_bytes = (
            np.concatenate([nothing, *column]).astype(np.int64)
            for column in (zip(*self.rows, strict=True) if self.rows else ((), ()))
        )
        return StepLinkLoads(self.row_of_step, start.astype(np.int64), link, n_bytes)
