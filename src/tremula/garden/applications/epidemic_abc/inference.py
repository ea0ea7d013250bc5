"""The inference as a tile program.

    Copy      observations, priors and the tolerance to every tile
    RepeatWhileTrue:
        Execute   each worker: draw parameters, simulate day by day, keep what is near enough
        Reduce    how many were kept, over all tiles
        If any:   Copy the slots to the host
        continue     while fewer than wanted were kept and rounds are left

A worker leaves a simulation on the first day on which it cannot come within the tolerance any more,
so a simulation takes as long as it takes: workers wait for each other at the end of a round only.
"""

from dataclasses import dataclass

import numpy as np

from tremula import poplar as tr
from tremula.base.errors import RuntimeFailure
from tremula.garden.applications.epidemic_abc.codelets import (
    N_KEPT,
    N_PARAMETERS,
    Decide,
    SimulateAndCompare,
)
from tremula.garden.applications.epidemic_abc.model import (
    HIGH,
    LOW,
    N_OBSERVED,
    Epidemic,
    scales,
)
from tremula.garden.models.science.tile_grids import rows_on_tiles
from tremula.poplibs import popops
from tremula.runtime.engine import Engine

MAX_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """Samples within the tolerance, and what finding them took."""

    parameters: np.ndarray  # [n, 8]
    distances: np.ndarray  # [n]
    n_simulated: int
    n_days: int  # simulated, of all samples together
    n_rounds: int
    n_chunks: int  # that went to the host
    cycles: int


class Inference:
    """The compiled program: one for all observations, priors and tolerances."""

    def __init__(
        self, epidemic: Epidemic, *, n_tiles: int, n_samples: int, n_slots: int = 4, seed: int = 1
    ):
        """`n_samples` are a worker's tries in a round."""
        self.epidemic, self.n_tiles, self.n_slots = epidemic, n_tiles, n_slots
        self._chunks: list[np.ndarray] = []
        device = tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_device()
        self.graph = tr.Graph(device)
        self.n_workers = self.graph.target.n_worker_contexts
        program = self._program(n_samples)
        self.graph.create_host_read("cycles", tr.cycle_count(self.graph, program, 0))
        self.engine = Engine(self.graph, program, {"tremula.seed": str(seed)})
        self.engine.connect_stream_to_callback("kept", self._receive)
        self.engine.load(device)

    # -- the program -------------------------------------------------------------------------------

    def _program(self, n_samples: int) -> tr.Sequence:
        constants, parts, bring = self._given()
        n_kept = rows_on_tiles(self.graph, "number kept", tr.INT, self.n_workers)
        tried = rows_on_tiles(self.graph, "tried", tr.INT, 2 * self.n_workers)
        accepted = rows_on_tiles(
            self.graph, "kept", tr.FLOAT, self.n_workers * self.n_slots * N_KEPT
        )
        self.graph.create_host_write("given", constants)
        self._read_and_written("tried", tried)
        simulate = self.graph.add_compute_set("simulate and compare")
        states = {
            "n_samples": n_samples,
            "n_slots": self.n_slots,
            "people": self.epidemic.people,
            "confirmed": self.epidemic.confirmed,
        }
        edges = {**parts, "kept": accepted, "n_kept": n_kept, "tried": tried}
        tiles = np.arange(self.n_tiles)
        self.graph.add_vertices(simulate, SimulateAndCompare, edges | states, tiles=tiles)

        a_round = tr.Sequence(tr.Execute(simulate))
        n_new = popops.reduce(self.graph, n_kept, [0, 1], "ADD", a_round)
        is_new, goes_on = self._decided(n_new, a_round)
        to_host = self.graph.add_device_to_host_fifo("kept", tr.FLOAT, accepted.n_elems)
        a_round.add(tr.If(is_new, tr.Copy(accepted, to_host), tr.Sequence()))
        return tr.Sequence(bring, tr.RepeatWhileTrue(a_round, goes_on, tr.Sequence()))

    def _given(self) -> tuple[tr.Tensor, dict[str, tr.Tensor], tr.Program]:
        """Inputs from the host, their parts on every tile, and the program that copies them."""
        n_values = self.epidemic.n_days * N_OBSERVED
        lengths = {
            "observed": n_values, "scale": N_OBSERVED, "low": N_PARAMETERS, "high": N_PARAMETERS,
            "limit": 1,
        }  # fmt: skip
        constants = self.graph.add_variable(tr.FLOAT, [sum(lengths.values())], "given", mapping=0)
        everywhere = rows_on_tiles(self.graph, "given everywhere", tr.FLOAT, len(constants))
        parts, begin = {}, 0
        for name, length in lengths.items():
            parts[name] = everywhere[:, begin : begin + length]
            begin += length
        return constants, parts, tr.Copy(constants.expand([0]).broadcast(self.n_tiles), everywhere)

    def _decided(self, n_new: tr.Tensor, a_round: tr.Sequence) -> tuple[tr.Tensor, tr.Tensor]:
        """Flags: was anything found in this round, and must there be another?"""
        flags = self.graph.add_variable(tr.BOOL, [2], "flags", mapping=0)
        bounds = self.graph.add_variable(tr.INT, [2], "bounds", mapping=0)
        counts = self.graph.add_variable(tr.INT, [2], "samples and rounds", mapping=0)
        self.graph.create_host_write("bounds", bounds)
        self._read_and_written("counts", counts)
        decide = self.graph.add_compute_set("decide")
        fields = {
            "n_new": n_new, "bounds": bounds, "n_found": counts[0], "n_rounds": counts[1],
            "is_new": flags[0], "goes_on": flags[1],
        }  # fmt: skip
        self.graph.add_vertex(decide, Decide, fields, tile=0)
        a_round.add(tr.Execute(decide))
        return flags[0], flags[1]

    def _read_and_written(self, handle: str, tensor: tr.Tensor) -> None:
        self.graph.create_host_write(handle, tensor)
        self.graph.create_host_read(handle, tensor)

    # -- a run -------------------------------------------------------------------------------------

    def run(
        self,
        observed: np.ndarray,
        tolerance: float,
        wanted: int,
        *,
        low: np.ndarray = LOW,
        high: np.ndarray = HIGH,
        max_rounds: int = MAX_ROUNDS,
    ) -> Accepted:
        """At least `wanted` samples at most `tolerance` away from what was observed [days, 3]."""
        self._check(observed, tolerance)
        limit = tolerance**2 * observed.size
        constants = [(observed / scales(observed)).ravel(), scales(observed), low, high, [limit]]
        self.engine.write_tensor("given", np.concatenate(constants).astype(np.float32))
        self.engine.write_tensor("bounds", np.array([wanted, max_rounds], np.int32))
        self.engine.write_tensor("counts", np.zeros(2, np.int32))
        self.engine.write_tensor("tried", np.zeros((self.n_tiles, 2 * self.n_workers), np.int32))
        self._chunks.clear()
        self.engine.run()
        return self._accepted(observed.size, wanted)

    def _accepted(self, n_values: int, wanted: int) -> Accepted:
        n_found, n_rounds = self.engine.read_tensor("counts").tolist()
        if n_found < wanted:
            raise RuntimeFailure(
                f"only {n_found} of {wanted} samples were near enough after {n_rounds} rounds.",
                hint="take a larger tolerance, or more rounds",
            )
        n_simulated, n_days = self.engine.read_tensor("tried").reshape(-1, 2).sum(0, dtype=int)
        rows = np.concatenate(self._chunks)
        return Accepted(
            parameters=rows[:, :N_PARAMETERS],
            distances=np.sqrt(rows[:, N_PARAMETERS] / n_values),
            n_simulated=int(n_simulated),
            n_days=int(n_days),
            n_rounds=n_rounds,
            n_chunks=len(self._chunks),
            cycles=int(self.engine.read_tensor("cycles").view(np.uint64)[0]),
        )

    def _receive(self, chunk: np.ndarray) -> None:
        rows = chunk.reshape(-1, N_KEPT)
        self._chunks.append(rows[rows[:, N_PARAMETERS] >= 0].copy())

    def _check(self, observed: np.ndarray, tolerance: float) -> None:
        expected = (self.epidemic.n_days, N_OBSERVED)
        if observed.shape != expected:
            raise ValueError(
                f"observations are days × (confirmed, recovered, dead): expected {expected}, got "
                f"{observed.shape}."
            )
        if not (observed.max(axis=0) > 0).all():
            raise ValueError("a series of observations is zero on all days: it has no scale.")
        if not tolerance > 0:
            raise ValueError(f"the tolerance must be positive, got {tolerance}.")
