"""Chains as a tile program: each worker walks by itself; after a round one tile asks if they agree.

Repeat:                     Execute  each worker: some steps       (forgotten: they only arrive)
RepeatWhileTrue:            Execute  each worker: some steps, sums of what it passes
                            Execute  tile 0: variance between chains against variance within
"""

from dataclasses import dataclass

import numpy as np

from tremula import poplar as tr
from tremula.base.errors import RuntimeFailure
from tremula.garden.applications.parallel_chains.codelets import N_STATE, N_SUMS, Agree, ChainWalk
from tremula.garden.applications.parallel_chains.model import N_COEFFICIENTS, PRIOR_DEVIATION
from tremula.garden.models.science.tile_grids import rows_on_tiles
from tremula.runtime.engine import Engine

N_WARM_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Sampled:
    """Moments over all chains, and what they took."""

    mean: np.ndarray  # [3]
    deviation: np.ndarray  # [3]
    ratio: float  # Gelman and Rubin's, when the chains stopped
    n_steps: int  # of each chain
    taken: float  # share of proposed steps


class Chains:
    """The compiled program for observations of one size."""

    def __init__(
        self,
        n_observations: int,
        *,
        n_tiles: int,
        n_steps: int = 100,
        step: float = 0.45,
        limit: float = 1.01,
        max_rounds: int = 200,
        seed: int = 1,
    ):
        """Chains end when the ratio is at most `limit`; rounds have `n_steps` steps."""
        self.n_tiles, self.n_steps, self.limit = n_tiles, n_steps, limit
        device = tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_device()
        self.graph = tr.Graph(device)
        self.n_workers = self.graph.target.n_worker_contexts
        program = self._program(n_observations, step, max_rounds)
        self.engine = Engine(self.graph, program, {"tremula.seed": str(seed)}).load(device)

    def _program(self, n_observations: int, step: float, max_rounds: int) -> tr.Sequence:
        parameters = self.graph.add_variable(
            tr.FLOAT, [n_observations * (N_COEFFICIENTS + 1)], "given", mapping=0
        )
        everywhere = rows_on_tiles(self.graph, "observations", tr.FLOAT, len(parameters))
        state = rows_on_tiles(self.graph, "state", tr.FLOAT, self.n_workers * N_STATE)
        sums = rows_on_tiles(self.graph, "sums", tr.FLOAT, self.n_workers * N_SUMS)
        n_taken = rows_on_tiles(self.graph, "taken", tr.INT, self.n_workers)
        no_sums = self.graph.add_constant(tr.FLOAT, sums.shape, 0.0, "no sums", mapping=0)
        none_taken = self.graph.add_constant(tr.INT, n_taken.shape, 0, "none taken", mapping=0)
        n_x = n_observations * N_COEFFICIENTS
        walk = self.graph.add_compute_set("walk")
        fields = {
            "x": everywhere[:, :n_x], "y": everywhere[:, n_x:], "state": state, "sums": sums,
            "n_taken": n_taken, "n_steps": self.n_steps, "step": step,
            "deviation": PRIOR_DEVIATION,
        }  # fmt: skip
        self.graph.add_vertices(walk, ChainWalk, fields, tiles=np.arange(self.n_tiles))
        agree, goes_on = self._agreement(sums, max_rounds)
        self.graph.create_host_write("given", parameters)
        self.graph.create_host_write("state", state)
        self.graph.create_host_read("sums", sums)
        self.graph.create_host_read("taken", n_taken)
        forget = tr.Sequence(tr.Copy(no_sums, sums), tr.Copy(none_taken, n_taken))
        a_round = tr.Sequence(tr.Execute(walk), agree)
        return tr.Sequence(
            tr.Copy(parameters.expand([0]).broadcast(self.n_tiles), everywhere),
            forget,
            tr.Repeat(N_WARM_ROUNDS, tr.Execute(walk)),
            forget,
            tr.RepeatWhileTrue(a_round, goes_on, tr.Sequence()),
        )

    def _agreement(self, sums: tr.Tensor, max_rounds: int) -> tuple[tr.Program, tr.Tensor]:
        """The question of a round, and the flag that says whether there must be another."""
        n_rounds = self.graph.add_variable(tr.INT, [], "rounds", mapping=0)
        ratio = self.graph.add_variable(tr.FLOAT, [], "ratio", mapping=0)
        goes_on = self.graph.add_variable(tr.BOOL, [], "goes on", mapping=0)
        compute_set = self.graph.add_compute_set("agree")
        fields = {
            "sums": sums.flatten(), "n_rounds": n_rounds, "ratio": ratio, "goes_on": goes_on,
            "limit": self.limit, "n_steps": self.n_steps, "max_rounds": max_rounds,
        }  # fmt: skip
        self.graph.add_vertex(compute_set, Agree, fields, tile=0)
        self.graph.create_host_write("rounds", n_rounds)
        self.graph.create_host_read("rounds", n_rounds)
        self.graph.create_host_read("ratio", ratio)
        return tr.Execute(compute_set), goes_on

    def run(self, x: np.ndarray, y: np.ndarray) -> Sampled:
        """Sample the posterior of observations x [n, 3] and y [n]; chains start far apart."""
        start = np.random.default_rng(1).normal(0, 2, (self.n_tiles, self.n_workers, N_STATE))
        start[..., N_COEFFICIENTS] = -1e30  # so that the first step is always taken
        self.engine.write_tensor("given", np.concatenate([x.ravel(), y]).astype(np.float32))
        self.engine.write_tensor("state", start.reshape(self.n_tiles, -1).astype(np.float32))
        self.engine.write_tensor("rounds", np.array(0, np.int32))
        self.engine.run()
        ratio = float(self.engine.read_tensor("ratio"))
        n_steps = int(self.engine.read_tensor("rounds")) * self.n_steps
        if ratio > self.limit:
            raise RuntimeFailure(
                f"the chains do not agree after {n_steps} steps: their ratio is {ratio:.3f},"
                f" expected at most {self.limit}.",
                hint="allow more rounds, or take another step size",
            )
        sums = self.engine.read_tensor("sums").reshape(-1, 2, N_COEFFICIENTS).astype(np.float64)
        mean, square = sums.mean(axis=0) / n_steps
        taken = self.engine.read_tensor("taken").mean() / n_steps
        return Sampled(mean, np.sqrt(square - mean**2), ratio, n_steps, float(taken))
