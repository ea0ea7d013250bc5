"""Cycles of every static step on every chip: sync, exchange and compute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.passes.exchange import ExchangePhase, StepExchange, StepExchanges
from tremula.compiler.passes.link_loads import LinkLoadRows, StepLinkLoads
from tremula.compiler.passes.vertex_costs import (
    PROVENANCES,
    ComputeSetCost,
    cost_compute_set,
    further_on,
)
from tremula.compiler.program_ir import LoweredPrograms, Step, StepKind
from tremula.hardware import Chip, System, Traffic, longest_exchange_latency_cycles
from tremula.poplar.target import Target
from tremula.poplar.tensors.tile_map import ByteTileMap

Ints = np.ndarray
PhaseCycles = Callable[[ExchangePhase, Chip], Ints]  # like phase_tile_cycles


@record
@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of static steps. Arrays are int64[n_steps, n_chips] unless said otherwise.

    A step takes sync + exchange + compute; `sync` holds what starts it, too. `link_exchange` and
    `host_exchange` are parts of `exchange`. A step that `joins` starts on all chips together, when
    the last of them is ready; another advances only the chips where it `is_active`, so steps on
    different chips overlap.
    """

    sync: Ints
    exchange: Ints
    link_exchange: Ints
    host_exchange: Ints
    compute: Ints
    is_active: Ints  # bool[n_steps, n_chips]
    joins: Ints  # bool[n_steps]
    needs_count: Ints  # bool[n_steps]: compute is known only after counting
    provenance_cycles: Ints  # int64[n_steps, 5]: vertex cycles by PROVENANCES
    n_flops: Ints  # int64[n_steps]
    peak_cycles: Ints  # int64[n_steps]: tile cycles of the flops at the peak of their units
    compute_sets: tuple[ComputeSetCost, ...]
    compute_set_of_step: Ints  # int64[n_steps], -1 for none
    tile_row: Ints  # int64[n_steps]: row of the tile columns
    compute_tiles: Ints  # int64[n_rows, n_tiles]
    busy_tiles: Ints
    exchange_tiles: Ints
    n_workers: int
    link_loads: StepLinkLoads

    @property
    def total(self) -> Ints:
        return self.sync + self.exchange + self.compute

    @property
    def takes_part(self) -> Ints:
        """bool[n_steps, n_chips]: chips that run a step, or wait for those that do."""
        return self.is_active | self.joins[:, None]

    def tile_compute(self, step: int) -> Ints:
        """int64[n_tiles]: compute cycles, idle workers included."""
        return self.compute_tiles[self.tile_row[step]]

    def tile_busy(self, step: int) -> Ints:
        """int64[n_tiles]: compute cycles, idle workers left out."""
        return self.busy_tiles[self.tile_row[step]]

    def tile_exchange(self, step: int) -> Ints:
        """int64[n_tiles]: cycles of on-chip exchange."""
        return self.exchange_tiles[self.tile_row[step]]


def cost_steps(programs: LoweredPrograms, exchanges: StepExchanges) -> StepCosts:
    """The costs of all steps; each compute set is costed once."""
    n_tiles = programs.graph.target.n_tiles
    sets: list[ComputeSetCost] = []
    on_chips = programs.graph.set_on_chips()
    for number, first in enumerate(programs.graph.set_numbers()):
        alike, n_further = int(on_chips.first[number]), int(on_chips.n_tiles[number])
        if first < number or alike < number:
            sets.append(sets[first] if first < number else further_on(sets[alike], n_further))
            continue
        compute_set = programs.graph.compute_sets[number]
        copy_cycles = _copy_cycles(exchanges.of_compute_set(number), n_tiles)
        sets.append(cost_compute_set(compute_set, programs.graph, copy_cycles))
    machine = CostedMachine(programs.graph.target, programs.graph.replication_factor)
    homes = partial(tile_of_predicate, programs.graph.tile_map)
    return cost_with(machine, programs.steps, exchanges, tuple(sets), homes)


def cost_with(
    machine: "CostedMachine",
    steps: Sequence[Step],
    exchanges: StepExchanges,
    sets: tuple[ComputeSetCost, ...],
    home_of: Callable[[Step], int],
    phase_cycles: PhaseCycles | None = None,
) -> StepCosts:
    """The costs of steps on a machine; `home_of` finds the tile of a branch's predicate.

    `phase_cycles` may know cycles of exchanges from an earlier machine with the same exchange.
    """
    coster = Coster(machine, len(steps), exchanges, sets, home_of)
    coster.phase_cycles = phase_cycles or phase_tile_cycles
    for number, step in enumerate(steps):
        coster.add(number, step)
    return coster.finish()


def tile_of_predicate(tile_map: ByteTileMap, branch: Step) -> int:
    """The tile that holds what a branch reads."""
    begin, end = branch.reads[0].byte_intervals()
    return int(tile_map.split(begin[:1], end[:1])[3][0])


def phase_tile_cycles(phase: ExchangePhase, chip: Chip) -> Ints:
    """int64[n_tiles]: cycles of each tile in an exchange; 0 for tiles that take no part.

    Payload at the bus rate, what a whole bus receives together at a multiple of it; control per
    incoming fragment overlaps the payload; the latency of the longest path is paid once.
    """
    n_on_bus, rate = chip.n_tiles_per_exchange_bus, chip.exchange_bytes_per_cycle
    received = phase.received - phase.shared + -(-phase.shared // n_on_bus)
    # A sender uses the free lanes of its bus for data that all its receivers take together.
    sent = phase.sent - phase.sent_wide + -(-phase.sent_wide // n_on_bus)
    sent = np.maximum(sent, -(-phase.sent_on_bus // n_on_bus))
    payload = np.ceil(np.maximum(received, sent) / rate).astype(np.int64)
    control = phase.n_in_fragments * chip.exchange_fragment_cycles
    takes_part = (phase.received > 0) | (phase.sent > 0)
    hidden = np.floor(phase.overlapped / rate).astype(np.int64)
    latency = np.maximum(phase.latency - hidden, 0)
    return np.where(takes_part, latency + np.maximum(payload, control), 0)


def _copy_cycles(moved: StepExchange, n_tiles: int) -> Ints:
    total = np.zeros(n_tiles, np.int64)
    for copies in (moved.gather, moved.scatter):
        if copies is not None:
            total = total + copies.cycles
    return total


class CostedMachine(NamedTuple):
    """What steps run on."""

    target: Target  # of one replica
    n_replicas: int


class Coster:
    """Fills the columns, one step at a time."""

    def __init__(
        self,
        machine: CostedMachine,
        n_steps: int,
        exchanges: StepExchanges,
        sets: tuple[ComputeSetCost, ...],
        home_of: Callable[[Step], int],
    ):
        self.target, self.n_replicas = machine
        self.exchanges, self.sets, self.home_of = exchanges, sets, home_of
        self.chip = self.target.chip
        self.phase_cycles: PhaseCycles = phase_tile_cycles
        n, n_chips = n_steps, self.target.n_ipus
        self.sync, self.exchange, self.link, self.host, self.compute = (
            np.zeros((n, n_chips), np.int64) for _ in range(5)
        )
        self.is_active = np.zeros((n, n_chips), bool)
        self.joins, self.needs_count = np.zeros(n, bool), np.zeros(n, bool)
        self.provenance = np.zeros((n, len(PROVENANCES)), np.int64)
        self.n_flops, self.peak_cycles = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.set_of_step = np.full(n, -1, np.int64)
        self.tile_row = np.zeros(n, np.int64)
        nothing = np.zeros(self.target.n_tiles, np.int64)
        self.rows: list[tuple[Ints, Ints, Ints]] = [(nothing, nothing, nothing)]
        self.loads = LinkLoadRows(n)
        self.step_of_row: dict[int, int] = {}  # the first step with a row of exchange

    @property
    def system(self) -> System:
        assert self.target.system is not None, "a target always gets a system"
        return self.target.system

    def add(self, number: int, step: Step) -> None:
        # Compute sets, and copies, that are alike share a row of exchange: they cost the same.
        row = int(self.exchanges.row_of_step[number])
        is_shared = step.kind in (StepKind.EXECUTE, StepKind.COPY)
        if is_shared and row in self.step_of_row:
            self._repeat(self.step_of_row[row], number, step)
            return
        _COST_OF_KIND.get(step.kind, Coster.cost_nothing)(self, number, step)
        if is_shared:
            self.step_of_row[row] = number

    def _repeat(self, earlier: int, number: int, step: Step) -> None:
        for column in (
            self.sync, self.exchange, self.link, self.host, self.compute, self.is_active,
            self.joins, self.needs_count, self.provenance, self.n_flops, self.peak_cycles,
            self.tile_row, self.loads.row_of_step,
        ):  # fmt: skip
            column[number] = column[earlier]
        self.set_of_step[number] = step.compute_set

    def finish(self) -> StepCosts:
        compute, busy, exchange = (np.stack(c) for c in zip(*self.rows, strict=True))
        return StepCosts(
            self.sync, self.exchange, self.link, self.host, self.compute, self.is_active,
            self.joins, self.needs_count, self.provenance, self.n_flops, self.peak_cycles,
            self.sets, self.set_of_step, self.tile_row, compute, busy, exchange,
            self.chip.n_workers, self.loads.finish(),
        )  # fmt: skip

    # -- on the chips ------------------------------------------------------------------------------

    def cost_execute(self, number: int, step: Step) -> None:
        cost = self.sets[step.compute_set]
        self.set_of_step[number] = step.compute_set
        self.needs_count[number] = cost.needs_count
        self.n_flops[number] = sum(table.n_flops for table in cost.tables)
        self.peak_cycles[number] = sum(table.peak_cycles for table in cost.tables)
        self.provenance[number] = sum(table.provenance_cycles for table in cost.tables)
        self._cost_on_chip(number, cost.tile_cycles, cost.busy_cycles)
        if cost.needs_count:
            self.is_active[number] = True
        self.sync[number] += self.chip.compute_set_start_cycles * self.is_active[number]

    def cost_copy(self, number: int, _: Step) -> None:
        cycles = _copy_cycles(self.exchanges.of_step(number), self.target.n_tiles)
        self._cost_on_chip(number, cycles, cycles)

    def _cost_on_chip(self, number: int, compute: Ints, busy: Ints) -> None:
        """Exchange of inputs, compute, and a second exchange if outputs go elsewhere.

        Tiles sync before each exchange, since it is timed to the cycle. Without one they go on.
        """
        moved = self.exchanges.of_step(number)
        exchange_tiles = np.zeros(self.target.n_tiles, np.int64)
        self.compute[number] = self._per_chip(compute)
        for phase in (moved.before, moved.after):
            if phase is None:
                continue
            tiles = self.phase_cycles(phase, self.chip)
            exchange_tiles = exchange_tiles + tiles
            cycles = self._per_chip(tiles)
            self.exchange[number] += cycles
            self.sync[number] += self.chip.sync_cycles * (cycles > 0)
            if phase.crosses_chips:
                self._cross_chips(number, self._for_replicas(phase.chip_bytes, phase.chip_sends))
        self.is_active[number] |= (self.compute[number] > 0) | (self.exchange[number] > 0)
        self._keep_tiles(number, compute, busy, exchange_tiles)

    def cost_branch(self, number: int, step: Step) -> None:
        """The predicate goes from its tile to all tiles."""
        n_bytes = sum(t.n_elems * t.type.n_bytes for t in step.reads)
        chip = self.chip
        payload = int(np.ceil(n_bytes / chip.exchange_bytes_per_cycle))
        self.sync[number] = chip.sync_cycles
        self.exchange[number] = longest_exchange_latency_cycles(chip) + payload
        self.is_active[number] = True
        if self.target.n_ipus > 1:
            traffic = np.zeros((self.target.n_ipus,) * 2, np.int64)
            home = self.home_of(step) // self.target.tiles_per_ipu
            traffic[home] = n_bytes
            self._cross_chips(number, self._for_replicas(traffic, np.sign(traffic)))

    def cost_sync(self, number: int, step: Step) -> None:
        detail = step.detail if isinstance(step.detail, dict) else {}
        is_internal = detail.get("sync_type", "internal") == "internal"
        if detail.get("sync_type") == "host":
            self.host[number] = int(np.ceil(self.chip.host_latency_s * self.chip.clock_hz))
            self.exchange[number] = self.host[number]
        chip = self.chip
        self.sync[number] = chip.sync_cycles if is_internal else chip.external_sync_cycles
        self.is_active[number] = True
        self.joins[number] = not is_internal

    def cost_machine_state(self, number: int, _: Step) -> None:
        # PopLibs charges one round of the workers for a write to a control register.
        self.compute[number] = self.chip.n_workers
        self.is_active[number] = True

    def cost_nothing(self, number: int, step: Step) -> None:
        """Steps that only steer the compiler or end the program."""

    # -- between chips and beyond ------------------------------------------------------------------

    def cost_cross_replica(self, number: int, step: Step) -> None:
        moved = self.exchanges.of_step(number).before
        if moved is None:
            self._external(number)
            return
        detail = step.detail if isinstance(step.detail, dict) else {}
        pairs = np.array(detail.get("pairs", ()), np.int64).reshape(-1, 2)
        self._cross_chips(number, self._between_replicas(moved, pairs))
        tiles = self.phase_cycles(moved, self.chip)
        self._keep_tiles(number, self.rows[0][0], self.rows[0][1], tiles)

    def _between_replicas(self, moved: ExchangePhase, pairs: Ints) -> Traffic:
        """What the chips of each replica send to those of its partner.

        Equal layouts go from chip to counterpart; of others only the totals of chips are known.
        """
        n = self.target.n_ipus
        sent, received, n_senders = (
            column.reshape(n, -1).sum(axis=1)
            for column in (moved.sent, moved.received, moved.sent > 0)
        )
        share = np.rint(np.outer(sent, received) / max(1, int(received.sum()))).astype(np.int64)
        if (moved.sent == moved.received).all():
            share = np.diag(sent)
        source, target = np.nonzero(share)
        shape = (len(pairs), len(source))
        return Traffic(
            (pairs[:, :1] * n + source).ravel(),
            (pairs[:, 1:] * n + target).ravel(),
            np.broadcast_to(share[source, target], shape).ravel(),
            np.broadcast_to(n_senders[source], shape).ravel(),
        )

    def cost_stream(self, number: int, step: Step) -> None:
        latency_s = 0.0 if step.is_merged_host_sync else self._stream_latency_s(step)
        rate = self.system.host_gbytes_per_s_per_machine
        self._outside(number, step, latency_s, rate)

    def _stream_latency_s(self, step: Step) -> float:
        """That of the host, or of the gateway if it has the data already; a card has none."""
        is_ahead = isinstance(step.detail, dict) and step.detail.get("is_ahead", False)
        is_at_gateway = is_ahead and self.system.has_gateway
        least = self.system.gateway_latency_s if is_at_gateway else np.inf
        return min(self.chip.host_latency_s, least)

    def cost_remote(self, number: int, step: Step) -> None:
        # Machines without streaming memory have their remote buffers on the host.
        system = self.system
        rate = system.dram_gbytes_per_s_per_machine or system.host_gbytes_per_s_per_machine
        self._outside(number, step, system.gateway_latency_s, rate)

    def cost_load_code(self, number: int, step: Step) -> None:
        self._outside(number, step, self.system.gateway_latency_s, 1.0)

    def _outside(
        self, number: int, step: Step, latency_s: float, machine_gbytes_per_s: float
    ) -> None:
        """A transfer with the host or streaming memory: by each chip's link and machine."""
        if not step.is_merged_host_sync:
            self._external(number)
        self.joins[number] = True
        self.is_active[number] = True
        moved = self.exchanges.of_step(number).before
        seconds = np.full(self.target.n_ipus, latency_s)
        if moved is not None:
            columns = (moved.received, moved.sent)
            per_chip = [c.reshape(self.target.n_ipus, -1).sum(axis=1) for c in columns]
            seconds = seconds + sum(self._link_seconds(b, machine_gbytes_per_s) for b in per_chip)
        self.host[number] = np.ceil(seconds * self.chip.clock_hz).astype(np.int64)
        self.exchange[number] += self.host[number]
        detail = step.detail if isinstance(step.detail, dict) else {}
        if moved is not None and detail.get("waits") == "own":
            self._keep_apart(number, (moved.received + moved.sent) > 0)

    def _keep_apart(self, number: int, is_used: Ints) -> None:
        """Let only the chips with tiles that move data take part, each for itself."""
        takes_part = is_used.reshape(self.target.n_ipus, -1).any(axis=1)
        self.joins[number], self.is_active[number] = False, takes_part
        for column in (self.sync, self.exchange, self.host):
            column[number] *= takes_part

    def _link_seconds(self, chip_bytes: Ints, machine_gbytes_per_s: float) -> np.ndarray:
        everyone = np.tile(chip_bytes, self.n_replicas)
        machine = np.arange(len(everyone)) // self.system.n_ipus_per_machine
        shared_s = np.bincount(machine, weights=everyone) / (machine_gbytes_per_s * 1e9)
        own_s = everyone / (self.chip.host_link_gbytes_per_s * 1e9)
        slowest = np.maximum(own_s, shared_s[machine]) * (everyone > 0)
        return slowest.reshape(self.n_replicas, -1).max(axis=0)

    def _external(self, number: int) -> None:
        self.sync[number] += self.chip.external_sync_cycles
        self.joins[number] = True
        self.is_active[number] = True

    def _cross_chips(self, number: int, traffic: Traffic) -> None:
        """Time on the links between chips; all chips wait for it."""
        self._external(number)
        loads = self.system.loads_of(traffic)
        cycles = int(np.ceil(loads.seconds * self.chip.clock_hz))
        self.link[number] += cycles
        self.exchange[number] += cycles
        self.loads.add(number, loads)

    def _for_replicas(self, chip_bytes: Ints, chip_sends: Ints) -> Traffic:
        """Traffic of one replica repeated in all, between the chips of the system."""
        one = Traffic.between(chip_bytes, chip_sends)
        n = self.n_replicas
        first = np.repeat(np.arange(n) * self.target.n_ipus, len(one.source))
        source, target, n_bytes, n_sends = (
            np.tile(column, n) for column in (one.source, one.target, one.n_bytes, one.n_sends)
        )
        return Traffic(source + first, target + first, n_bytes, n_sends)

    # -- tiles -------------------------------------------------------------------------------------

    def _per_chip(self, tiles: Ints) -> Ints:
        return tiles.reshape(self.target.n_ipus, self.target.tiles_per_ipu).max(axis=1)

    def _keep_tiles(self, number: int, compute: Ints, busy: Ints, exchange: Ints) -> None:
        if compute.any() or exchange.any():
            self.tile_row[number] = len(self.rows)
            self.rows.append((compute, busy, exchange))


_COST_OF_KIND: dict[StepKind, Callable[[Coster, int, Step], None]] = {
    StepKind.EXECUTE: Coster.cost_execute,
    StepKind.COPY: Coster.cost_copy,
    StepKind.BRANCH: Coster.cost_branch,
    StepKind.SYNC: Coster.cost_sync,
    StepKind.STAMP: Coster.cost_sync,
    StepKind.MACHINE_STATE: Coster.cost_machine_state,
    StepKind.CROSS_REPLICA: Coster.cost_cross_replica,
    StepKind.STREAM_IN: Coster.cost_stream,
    StepKind.STREAM_OUT: Coster.cost_stream,
    StepKind.HOST_CALL: Coster.cost_stream,
    StepKind.PRINT: Coster.cost_stream,
    StepKind.REMOTE_READ: Coster.cost_remote,
    StepKind.REMOTE_WRITE: Coster.cost_remote,
    StepKind.LOAD_CODE: Coster.cost_load_code,
}
