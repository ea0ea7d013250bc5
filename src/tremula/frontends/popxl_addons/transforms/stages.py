"""Stages of a pipeline while its operations are made, and tensors that later stages restore."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

import popxl
from popxl import ops
from popxl.transforms import GradGraphInfo
from tremula.frontends.popxl.core.call_site import CallSiteInfo
from tremula.frontends.popxl.core.context import pipeline_stage
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl_addons.graphs.module import Module

OpsByStage = Mapping[int, list[Op]]


class Stash(Module):
    """Write a tensor into the next place of a ring, which is a variable."""

    @popxl.in_sequence()
    def build(self, t: popxl.Tensor, stash_size: int) -> None:
        """`stash_size` is how many tensors the ring has room for."""
        if stash_size <= 1:
            raise TypeError(f"A stash must have room for 2 tensors or more, got {stash_size}")
        shape = t.shape or (1,)
        counter = _counter(self)
        stash = self.add_variable_input(
            "stash", partial(np.zeros, (stash_size, *shape)), t.dtype, by_ref=True
        )
        row = ops.reshape(t, (1, *shape))
        ops.dynamic_update_(stash, counter, row, axes=[0], sizes=[1], no_overlap=True)
        ops.increment_mod_(counter, 1, stash_size)


class Restore(Module):
    """Read the oldest tensor of a ring that was not read yet."""

    @popxl.in_sequence()
    def build(self, stash: popxl.TensorByRef) -> popxl.Tensor:
        """[places, …] → […]."""
        counter = _counter(self)
        row = ops.dynamic_slice(stash, counter, axes=[0], sizes=[1], no_overlap=True)
        ops.increment_mod_(counter, 1, stash.shape[0])
        return ops.reshape(row, row.shape[1:])


def _counter(module: Module) -> popxl.Tensor:
    return module.add_variable_input("counter", partial(np.zeros, (1,)), popxl.uint32, by_ref=True)


def get_op_pipeline_stage(op: Op, op_dict: OpsByStage) -> int | None:
    """The stage that an operation belongs to."""
    return next((stage for stage, members in op_dict.items() if op in members), None)


class StageContext:
    """The stages of a pipeline, which operations join when they are made."""

    def __init__(self) -> None:
        self._stage: int | None = None
        self.ops: dict[int, list[Op]] = defaultdict(list)

    def hook(self, op: Op) -> None:
        """Add an operation that was made to the stage that is open."""
        if self._stage is None:
            raise RuntimeError(
                f"Operation {op.kind} was made outside of a stage: every operation of a pipeline"
                " belongs to one, `with pipeline.stage(i):`"
            )
        self.ops[self._stage].append(op)

    @contextmanager
    def stage(self, i: int) -> Iterator[None]:
        """Operations made inside belong to stage i."""
        outer, self._stage = self._stage, i
        try:
            with pipeline_stage(i):
                yield
        finally:
            self._stage = outer

    def _stage_of(self, t: popxl.Tensor) -> int | None:
        """The stage that makes a tensor; None for those from outside of the pipeline."""
        return None if t.producer is None else get_op_pipeline_stage(t.producer, self.ops)

    def stash_and_restore_tensor(
        self, t: popxl.Tensor, from_stage: int | None = None
    ) -> popxl.Tensor:
        """A tensor of an earlier stage, as it was for the micro-batch of the stage that is open.

        It waits in a ring with room for as many micro-batches as are on the way between the stages.
        """
        to_stage = self._stage
        if to_stage is None:
            raise RuntimeError("A tensor is restored in a stage: `with pipeline.stage(i):`")
        from_stage = self._stage_of(t) if from_stage is None else from_stage
        if from_stage is None:
            raise RuntimeError(
                f"No stage makes {t!r}: say by `from_stage` in which one it is stashed"
            )
        if to_stage <= from_stage:
            return t
        with self.stage(from_stage):
            factories, graph = Stash().create_graph(t, to_stage - from_stage + 1)
            ring = factories.init("stash")
            graph.bind(ring).call(t)
        factories, graph = Restore().create_graph(ring.stash)
        (row,) = graph.bind(factories.init("restore")).call(ring.stash)
        return row if row.shape == t.shape else ops.reshape(row, t.shape)

    def stash_and_restore_activations(
        self, call_info: CallSiteInfo, grad_info: GradGraphInfo
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """Inputs of a gradient graph that are tensors of the forward call, restored.

        Variables and other tensors from outside of the pipeline are passed as they are.
        """
        made_in = get_op_pipeline_stage(call_info._op, self.ops)
        return {
            inner: outer
            if self._stage_of(outer) is None
            else self.stash_and_restore_tensor(outer, made_in)
            for inner, outer in grad_info.inputs_dict(call_info).items()
        }
