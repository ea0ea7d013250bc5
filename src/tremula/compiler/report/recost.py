"""Costs of an executable on another target, from the tables in its file."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tremula.base.source import source_at
from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import Coster, StepCosts
from tremula.compiler.program_ir import Step, StepKind
from tremula.poplar.target import Target

NOWHERE = source_at("", 0)


def recost_steps(executable: Executable, target: Target) -> StepCosts:
    """Costs of an executable's steps on another target of as many tiles, compute left as it is.

    Vertices and copies within tiles keep their cycles; everything between tiles, chips and the host
    is costed again.
    """
    costs = executable.analysis.costs
    coster = _Recoster(executable, target, costs)
    for number, step in enumerate(_steps_of(executable)):
        coster.add(number, step)
    return coster.finish()


def _steps_of(executable: Executable) -> list[Step]:
    """Steps as the coster knows them; the tensors of an executable's are views."""
    before = np.append(-1, executable.step_of[:-1])
    numbers, at = np.unique(executable.step_of, return_index=True)
    earlier_of = before[at[numbers >= 0]].tolist()
    steps = []
    for of, earlier in zip(executable.steps, earlier_of, strict=True):
        is_merged = (
            of.kind in (StepKind.STREAM_IN, StepKind.STREAM_OUT)
            and earlier >= 0
            and executable.steps[earlier].kind is of.kind
        )
        reads: Any = of.reads
        steps.append(
            Step(
                of.kind,
                of.name,
                NOWHERE,
                of.path,
                of.compute_set,
                reads,
                (),
                of.detail,
                is_merged,
            )
        )
    return steps


class _Recoster(Coster):
    """Costs an executable, which has tables in place of a graph."""

    def __init__(self, executable: Executable, target: Target, costs: StepCosts):
        self.executable = executable
        analysis: Any = executable.analysis
        graph = SimpleNamespace(
            target=target, tile_map=None, replication_factor=executable.replication_factor
        )
        programs: Any = SimpleNamespace(graph=graph, steps=executable.steps)
        super().__init__(programs, analysis.exchanges, costs.compute_sets)

    def _home_of(self, scalar: Any) -> int:  # noqa: ANN401 - a View, which has no tile map
        variables, live = self.executable.variables, cast(Any, self.executable.analysis).liveness
        at = int(scalar.runs.start[0]) * scalar.type.n_bytes
        owner = int(np.searchsorted(variables.base_bytes, at, side="right")) - 1
        return int(live.tile[live.tile_start[owner]])
