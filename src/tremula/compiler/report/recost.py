"""Costs of an executable on another target, from the tables in its file."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tremula.base.source import source_at
from tremula.compiler.executable.executable import Executable
from tremula.compiler.executable.records import View
from tremula.compiler.passes.cost import CostedMachine, PhaseCycles, StepCosts, cost_with
from tremula.compiler.passes.overlap import hide_transfers
from tremula.compiler.program_ir import Step, StepKind
from tremula.poplar.target import Target

NOWHERE = source_at("", 0)


def recost_steps(
    executable: Executable,
    steps: Sequence[Step],
    target: Target,
    phase_cycles: PhaseCycles | None = None,
) -> StepCosts:
    """Costs of an executable's steps on another target of as many tiles, compute left as it is.

    Vertices and copies within tiles keep their cycles; everything between tiles, chips and the host
    is costed again. `steps` are `steps_of` the executable.
    """
    analysis = executable.analysis
    costs = cost_with(
        CostedMachine(target, executable.replication_factor),
        steps,
        analysis.exchanges,
        analysis.costs.compute_sets,
        partial(_home_of, executable),
        phase_cycles,
    )
    code, step_of = executable.code, executable.step_of
    return hide_transfers(costs, code, step_of, steps, analysis.exchanges)


def steps_of(executable: Executable) -> list[Step]:
    """Steps as costing knows them; the tensors of an executable's are views."""
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
        reads: Any = of.reads  # views, of which costs ask the same as of tensors: type and size
        step = Step(of.kind, of.name, NOWHERE, of.path, of.compute_set, reads, (), of.detail)
        steps.append(replace(step, is_merged_host_sync=is_merged))
    return steps


def _home_of(executable: Executable, branch: Step) -> int:
    """The tile of a predicate: the first of its variable, as liveness has it."""
    scalar: View = branch.reads[0]  # pyright: ignore[reportAssignmentType] - see steps_of
    variables, live = executable.variables, executable.analysis.liveness
    at = int(scalar.runs.start[0]) * scalar.type.n_bytes
    owner = int(np.searchsorted(variables.base_bytes, at, side="right")) - 1
    return int(live.tile[live.tile_start[owner]])
