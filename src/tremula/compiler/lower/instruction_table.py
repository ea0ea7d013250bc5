"""The instruction table of a graph's programs, as it grows."""

from dataclasses import replace
from typing import cast

import numpy as np

from tremula.compiler.lower.copies import CopyModel, model_copy, variables_of_copy
from tremula.compiler.lower.dedup import alike_copies, first_alike
from tremula.compiler.program_ir import (
    N_OPERANDS,
    CopyPlan,
    FrozenComputeSet,
    FrozenGraph,
    LoweredPrograms,
    Op,
    Step,
    StepKind,
)
from tremula.poplar import programs as p
from tremula.poplar.graph import Graph
from tremula.poplar.streams import Function
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet


class InstructionTable:
    """Grows the instruction table while walking program trees."""

    def __init__(self) -> None:
        self.code: list[list[int]] = []
        self.step_of: list[int] = []
        self.steps: list[Step] = []
        self.copies: list[CopyPlan] = []
        self.copy_kinds: list[tuple[bytes, tuple[int, ...]]] = []  # digest and variables
        self.copy_models: dict[p.Copy, CopyModel] = {}
        self.cases: list[tuple[int, int]] = []
        self.compute_sets: dict[ComputeSet, int] = {}
        self.names: list[str] = []
        self.entries: list[int] = []
        self.functions: dict[Function, int] = {}  # function -> number, in order of first call
        self.function_entries: list[int] = []
        self.calls: dict[Function | None, set[Function]] = {}  # who calls whom
        self.caller: Function | None = None
        self.path: tuple[str, ...] = ()
        self.n_loop_slots = 0

    def emit(self, op: Op, *operands: int, step: int = -1) -> int:
        """Append an instruction; return its index, for patching."""
        self.code.append([int(op), *operands, *[0] * (N_OPERANDS - len(operands))])
        self.step_of.append(step)
        return len(self.code) - 1

    def here(self) -> int:
        return len(self.code)

    def patch(self, at: int, operand: int) -> None:
        """Let an operand (0 = a) of an earlier instruction point here."""
        self.code[at][1 + operand] = self.here()

    def add_step(
        self,
        program: p.Program,
        kind: StepKind,
        *,
        name: str = "",
        compute_set: int = -1,
        reads: tuple[Tensor, ...] = (),
        writes: tuple[Tensor, ...] = (),
        detail: object = None,
    ) -> int:
        name = name or program.name or type(program).__name__
        is_merged = self._follows_stream_copy(kind)
        step = Step(
            kind, name, program.source, self.path, compute_set, reads, writes, detail, is_merged
        )
        self.steps.append(step)
        return len(self.steps) - 1

    def _follows_stream_copy(self, kind: StepKind) -> bool:
        """Adjacent stream copies of one direction share a host sync."""
        before = self.step_of[-1] if self.step_of else -1
        streams = (StepKind.STREAM_IN, StepKind.STREAM_OUT)
        return before >= 0 and kind in streams and self.steps[before].kind is kind

    def add_copy(self, first: p.Copy, source: Tensor, destination: Tensor) -> int:
        """Plan a copy, or shift the plan of the one that it repeats; returns its number."""
        model = self.copy_models.get(first)
        if model is None:
            sides = first.source_of_data, first.destination
            model = self.copy_models[first] = model_copy(*cast("tuple[Tensor, Tensor]", sides))
        variables = variables_of_copy(source, destination)
        self.copies.append(model.over(source.variables, variables))
        self.copy_kinds.append((model.digest, variables))
        return len(self.copies) - 1

    def finish(self, graph: Graph) -> LoweredPrograms:
        state = graph.state
        frozen = FrozenGraph(
            graph.target,
            graph.replication_factor,
            state.variables,
            state.tile_map.resolve(),
            tuple(
                FrozenComputeSet(cs.name, cs.source, cs.modelled or cs.frozen_tables())
                for cs in self.compute_sets
            ),
            state.handles,
            tuple(state.initial_parts),
            dict(state.perf_estimators),
            state.replica_index,
        )
        frozen = replace(frozen, first_alike=first_alike(frozen))
        return LoweredPrograms(
            frozen,
            tuple(self.names),
            tuple(self.entries),
            np.array(self.code, np.int64).reshape(-1, 1 + N_OPERANDS),
            np.array(self.step_of, np.int64),
            tuple(self.steps),
            tuple(self.copies),
            np.array(self.cases, np.int64).reshape(-1, 2),
            self.n_loop_slots,
            alike_copies(frozen, self.copy_kinds),
        )
