"""Pipelines: stages work on different micro-batches at the same time.

Stage s of cycle c works on micro-batch c - s. The operations of each stage become a graph. What a
stage makes for the next one waits in a register until the next cycle; what a later stage needs
waits in a ring (`stash_and_restore_tensor`). S - 1 cycles fill the pipeline, a loop of full cycles
follows, S - 1 cycles empty it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.core.context import pipeline_stage
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl_addons.transforms.moving import clone_op, remove_ops, written_tensors

Tensors = list[popxl.Tensor]


@contextmanager
def pipelined_execution(steps: int) -> Iterator["Pipeline"]:
    """Run what is made inside, for `steps` micro-batches, as a pipeline.

        with addons.pipelined_execution(steps) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                ...

    Every operation must belong to a stage. There must be at least 2 · S micro-batches for S stages.
    """
    pipeline = Pipeline(popxl.gcg(), steps)
    handle = pipeline.graph.register_op_created_hook(pipeline.note)
    try:
        yield pipeline
    finally:
        pipeline.graph.remove_op_created_hook(handle)
    pipeline.apply()


class Pipeline:
    """The stages of a pipeline while their operations are made."""

    def __init__(self, graph: popxl.Graph, steps: int):
        self.graph, self.steps = graph, steps
        self._stage: int | None = None
        self._outside = False  # operations that prepare the pipeline
        self.stage_of: dict[Op, int] = {}

    def note(self, op: Op) -> None:
        """Remember the stage of an operation that was made."""
        if self._outside:
            return
        if self._stage is None:
            raise RuntimeError(
                f"Operation {op.kind} was made outside of a stage: every operation of a pipeline"
                " belongs to one, `with pipeline.stage(i):`"
            )
        self.stage_of[op] = self._stage

    @contextmanager
    def stage(self, i: int) -> Iterator[None]:
        """Operations made inside belong to stage i."""
        outer, self._stage = self._stage, i
        try:
            with pipeline_stage(i):
                yield
        finally:
            self._stage = outer

    # -- values that a later stage needs --

    def stash_and_restore_tensor(
        self, t: popxl.Tensor, from_stage: int | None = None
    ) -> popxl.Tensor:
        """A tensor of an earlier stage, as it was for the micro-batch of the stage that is open."""
        to_stage = self._stage
        if to_stage is None:
            raise RuntimeError("A tensor is restored in a stage: `with pipeline.stage(i):`")
        made_in = self.stage_of.get(t.producer) if t.producer is not None else None
        from_stage = made_in if from_stage is None else from_stage
        if from_stage is None or to_stage <= from_stage:
            return t
        ring, write_at, read_at = self._ring(t, to_stage - from_stage + 1)
        depth = ring.shape[0]
        with self.stage(from_stage):
            row = ops.reshape(t, (1, *t.shape))
            ops.dynamic_update_(ring, write_at, row, [0], [1], no_overlap=True)
            ops.increment_mod_(write_at, 1, depth)
        row = ops.dynamic_slice(ring, read_at, [0], [1], no_overlap=True)
        ops.increment_mod_(read_at, 1, depth)
        return ops.reshape(row, t.shape)

    def _ring(self, t: popxl.Tensor, depth: int) -> tuple[popxl.Tensor, popxl.Tensor, popxl.Tensor]:
        """Room for n micro-batches, and where the next is written and read."""
        outer, self._outside = self._outside, True
        try:
            ring = ops.init((depth, *t.shape), t.dtype, f"{t.name}_stash".replace("/", "_"))
            places = [ops.init((1,), popxl.uint32, f"stash_{what}") for what in ("write", "read")]
        finally:
            self._outside = outer
        return ring, places[0], places[1]

    def stash_and_restore_activations(
        self, call_info: Any, grad_info: Any
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """Inputs of a gradient graph that are tensors of the forward call, restored."""
        return {
            inner: self.stash_and_restore_tensor(outer)
            for inner, outer in grad_info.inputs_dict(call_info).items()
        }

    # -- making it --

    def apply(self) -> None:
        """Move the operations to the graphs of their stages, and make the cycles."""
        n_stages = len(set(self.stage_of.values()))
        if sorted(set(self.stage_of.values())) != list(range(n_stages)):
            raise ValueError(f"Stages must be 0, 1, …, got {sorted(set(self.stage_of.values()))}")
        if self.steps < 2 * n_stages:
            raise ValueError(
                "A pipeline needs at least twice as many steps as stages:"
                f" steps={self.steps} stages={n_stages}"
            )
        stages = [
            _Stage(self.graph, i, [op for op, stage in self.stage_of.items() if stage == i])
            for i in range(n_stages)
        ]
        _Cycles(stages, self.steps).build(self.graph)


class _Stage:
    """The graph of a stage: what it reads from outside and from stages, what it gives."""

    def __init__(self, graph: popxl.Graph, number: int, operations: list[Op]):
        self.number = number
        self.operations = operations
        self.made = {t for op in operations for t in op.outputs}
        read = dict.fromkeys(t for op in operations for t in op.inputs)
        self.reads: Tensors = [t for t in read if t not in self.made]
        self.written = {t for op in operations for t in written_tensors(op)}
        self.graph = graph.ir.create_empty_graph(f"pipeline_stage_{number}")
        self.gives: Tensors = []

    def move(self) -> None:
        """Make the operations again in the stage's own graph."""
        tensors: dict[popxl.Tensor, popxl.Tensor] = {}
        with self.graph:
            for t in self.reads:
                name, by_ref = t.name.replace("/", "_"), t in self.written
                tensors[t] = popxl.graph_input(t.shape, t.dtype, name, by_ref, t.meta_shape)
            for op in self.operations:
                clone_op(op, self.graph, tensors)
            for t in self.gives:
                popxl.graph_output(tensors[t])


class _Cycles:
    """Calls of stages: fill, loop, flush. Registers hold what goes from one cycle to the next."""

    def __init__(self, stages: list[_Stage], steps: int):
        self.stages, self.steps = stages, steps
        owner = {t: stage for stage in stages for t in stage.made}
        for stage in stages:
            for t in stage.reads:
                if t in owner:
                    _check_distance(t, owner[t].number, stage.number)
                    if t not in owner[t].gives:
                        owner[t].gives.append(t)
        self.registers = [t for stage in stages for t in stage.gives]
        outside = dict.fromkeys(t for s in stages for t in s.reads if t not in owner)
        self.outside: Tensors = list(outside)
        self.written = {t for stage in stages for t in stage.written if t in outside}

    def build(self, graph: popxl.Graph) -> None:
        for stage in self.stages:
            stage.move()
        remove_ops(graph, [op for stage in self.stages for op in stage.operations])
        n_fill = len(self.stages) - 1
        with popxl.in_sequence(True):
            values = dict(zip(self.outside, self.outside, strict=True))
            values |= {
                t: ops.init(t.shape, t.dtype, f"{t.name}_register".replace("/", "_"))
                for t in self.registers
            }
            for cycle in range(n_fill):
                values = self._cycle(self.stages[: cycle + 1], values)
            values = self._full_cycles(values, self.steps - n_fill)
            for cycle in range(n_fill):
                values = self._cycle(self.stages[cycle + 1 :], values)

    def _cycle(
        self, stages: Iterable[_Stage], values: Mapping[popxl.Tensor, popxl.Tensor]
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """Call stages with what the registers held before; what they hold then."""
        after = dict(values)
        for stage in stages:
            given = dict(zip(stage.graph.inputs, (values[t] for t in stage.reads), strict=True))
            results = ops.call(stage.graph, inputs_dict=given)
            after |= dict(zip(stage.gives, results, strict=True))
        return after

    def _full_cycles(
        self, values: Mapping[popxl.Tensor, popxl.Tensor], n_cycles: int
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        body = popxl.gcg().ir.create_empty_graph("pipeline_cycle")
        with body, popxl.in_sequence(True):
            own = {
                t: popxl.graph_input(
                    t.shape, t.dtype, t.name.replace("/", "_"), t in self.written, t.meta_shape
                )
                for t in (*self.registers, *self.outside)
            }
            after = self._cycle(self.stages, own)
            for t in self.registers:
                popxl.graph_output(after[t])
        given = [values[t] for t in (*self.registers, *self.outside)]
        results = ops.repeat(body, n_cycles, *given)
        return {**values, **dict(zip(self.registers, results, strict=True))}


def _check_distance(t: popxl.Tensor, made_in: int, read_in: int) -> None:
    if read_in - made_in != 1:
        raise ValueError(
            f"{t.id} is made in stage {made_in} and read in stage {read_in}: only the next stage"
            " sees it, others restore it with `pipeline.stash_and_restore_tensor`"
        )


def pipeline_shape(n_stages: int, n_steps: int) -> np.ndarray:
    """int64[stages, cycles]: the micro-batch that a stage works on in a cycle, -1 for none."""
    cycles = np.arange(n_steps + n_stages - 1)
    result = cycles[None, :] - np.arange(n_stages)[:, None]
    return np.where((result >= 0) & (result < n_steps), result, -1)
