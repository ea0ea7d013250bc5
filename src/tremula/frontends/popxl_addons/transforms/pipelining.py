"""Pipelines: stages work on different micro-batches at the same time.

Stage s of cycle c works on micro-batch c - s. The operations of each stage become a graph, or with
`transfers_apart` up to three: loads from the host, computing, stores to the host; and copies to
IPUs of later stages one graph of all stages. A cycle calls them in this order. What a stage makes
for the next one, it reads in the next cycle; what a later stage needs waits in a ring
(`stash_and_restore_tensor`). S - 1 cycles fill the pipeline, a loop of full cycles follows, S - 1
cycles empty it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl_addons.graphs.graph import BoundGraph
from tremula.frontends.popxl_addons.transforms.moving import clone_op, remove_ops, written_tensors
from tremula.frontends.popxl_addons.transforms.stages import OpsByStage, StageContext

COPIES = -1  # the stage of the graph that copies to other IPUs


@contextmanager
def pipelined_execution(steps: int) -> Iterator[StageContext]:
    """Run what is made inside, for `steps` micro-batches, as a pipeline.

        with addons.pipelined_execution(steps) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                ...

    Every operation must belong to a stage. There must be at least 2 · S micro-batches for S stages.
    """
    graph = popxl.gcg()
    transform, stages = Pipelining(graph, steps), StageContext()
    handle = graph.register_op_created_hook(stages.hook)
    try:
        yield stages
    finally:
        graph.remove_op_created_hook(handle)
    transform.apply(stages.ops)


class PipelineBoundGraph(BoundGraph):
    """Operations of a stage in a separate graph, by the ids that tensors had before."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._input_of: dict[str, popxl.Tensor] = {}
        self._output_ids: list[str] = []

    def call(  # type: ignore[override]  Graphcore's has another argument, too
        self, *args: Any, inputs_dict: Mapping[popxl.Tensor, popxl.Tensor] | None = None
    ) -> tuple[popxl.Tensor, ...]:
        """Call the graph with what its inputs are connected to now."""
        return super().call(*args, args=inputs_dict)

    @property
    def original_output_ids(self) -> list[str]:
        """The ids that the graph's outputs had before, in order."""
        return self._output_ids

    @property
    def original_input_ids(self) -> list[str]:
        """The ids that the tensors of the graph's inputs had before."""
        return list(self._input_of)

    def add_variable_input(self, tensor: popxl.Tensor, by_ref: bool = True) -> popxl.Tensor:
        """One more input, for a tensor that operations read, or write if it is by reference."""
        with self.graph:
            name = tensor.name.replace("/", "_")
            made = popxl.graph_input(tensor.shape, tensor.dtype, name, by_ref, tensor.meta_shape)
        self._input_of[tensor.id], self.args[made] = made, tensor
        return made

    def add_output_tensor(self, tensor: popxl.Tensor, original_id: str) -> None:
        """One more output: a tensor of the graph, and the id it had before."""
        with self.graph:
            popxl.graph_output(tensor)
        self._output_ids.append(original_id)

    def reconnect_input(self, original_id: str, new: popxl.Tensor) -> None:
        """Read a tensor instead of the one with this id, if the graph reads it."""
        if original_id in self._input_of:
            self.args[self._input_of[original_id]] = new

    def __contains__(self, value: object) -> bool:
        return value in self.graph


class Pipelining:
    """Makes a pipeline of a graph's operations: their stages' graphs, and the cycles' calls.

    Transfers are part of their stage's graph, so that they overlap with stages on other chips.
    Setting `transfers_apart` before `apply` makes them separate graphs.
    """

    transfers_apart = False

    def __init__(self, graph: popxl.Graph, steps: int):
        self.ir, self.graph, self.steps = graph.ir, graph, steps
        self._written_in: dict[int, set[str]] = {}
        self.loads: dict[int, PipelineBoundGraph] = {}
        self.stages: dict[int, PipelineBoundGraph] = {}
        self.stores: dict[int, PipelineBoundGraph] = {}
        self.ipu_copies = PipelineBoundGraph(self.ir.create_empty_graph("ipu_copies"))
        self.num_stages = 0
        self._made_in: dict[str, tuple[PipelineBoundGraph, popxl.Tensor]] = {}
        self._stage_of: dict[PipelineBoundGraph, int] = {self.ipu_copies: COPIES}
        self._made_at: dict[str, int] = {}  # the stage that makes a tensor
        self._outside: dict[str, popxl.Tensor] = {}  # tensors from before the pipeline
        self._registers: dict[str, popxl.Tensor] = {}  # what later stages read in this cycle
        self._next: dict[str, popxl.Tensor] = {}  # and in the next

    def apply(self, include_ops: OpsByStage | None = None) -> None:
        """Move operations to the graphs of their stages, and make the cycles.

        Without `include_ops` the operations of the graph are taken by the stages they were made in.
        """
        chosen = self._by_context() if include_ops is None else dict(include_ops)
        numbers = sorted(chosen)
        self.num_stages = len(numbers)
        if numbers != list(range(self.num_stages)):
            raise ValueError(f"Stages must be 0, 1, …, got {numbers}")
        if self.steps < 2 * self.num_stages:
            raise ValueError(
                "A pipeline needs at least twice as many steps as stages:"
                f" steps={self.steps} stages={self.num_stages}"
            )
        self.construct_graphs(chosen)
        remove_ops(self.graph, [op for members in chosen.values() for op in members])
        self.build()

    def _by_context(self) -> dict[int, list[Op]]:
        result: dict[int, list[Op]] = {}
        for op in self.graph.ops:
            if op.stage is not None:
                result.setdefault(op.stage, []).append(op)
        return result

    # -- graphs of the stages --

    def required_for_host_load(self, op: Op) -> bool:
        """Whether an operation loads from the host, or makes the tensor that a load fills."""
        if op.kind == "HostLoad":
            return True
        readers = [other for other in op.graph.ops if op.outputs and op.outputs[0] in other.inputs]
        return op.kind == "Init" and [other.kind for other in readers] == ["HostLoad"]

    def construct_graphs(self, include_ops: OpsByStage) -> None:
        """Make the operations again in graphs of their stages."""
        for stage in sorted(include_ops):
            members = include_ops[stage]
            self._made_at |= {t.id: stage for op in members for t in op.outputs}
            self._written_in[stage] = {t.id for op in members for t in written_tensors(op)}
            parts = {"loads": self.loads, "stage": self.stages, "stores": self.stores}
            for op in members:
                kind = self._part(op, members)
                target = self.ipu_copies
                if kind != "copies":
                    target = self._graph_of(parts[kind], stage, kind)
                self.move_op_into_graph(target, op)

    def _part(self, op: Op, members: list[Op]) -> str:
        """Which graph of its stage an operation belongs to."""
        if not self.transfers_apart:
            return "stage"
        if self.required_for_host_load(op):
            return "loads"
        if op.kind == "HostStore":
            return "stores"
        is_read_here = any(t in other.inputs for t in op.outputs for other in members)
        return "copies" if op.kind == "IpuCopy" and not is_read_here else "stage"

    def _graph_of(
        self, graphs: dict[int, PipelineBoundGraph], stage: int, name: str
    ) -> PipelineBoundGraph:
        if stage not in graphs:
            title = f"pipeline_stage_{stage}" if name == "stage" else f"{name}_stage_{stage}"
            graphs[stage] = PipelineBoundGraph(self.ir.create_empty_graph(title))
            self._stage_of[graphs[stage]] = stage
        return graphs[stage]

    def move_op_into_graph(self, graph: PipelineBoundGraph, op: Op) -> None:
        """Make an operation again in a graph, connected to the graphs that make its inputs."""
        tensors = {t: self._input(graph, t) for t in op.inputs}
        with graph.graph:
            clone_op(op, graph.graph, tensors)
        self._made_in |= {t.id: (graph, tensors[t]) for t in op.outputs}

    def _input(self, graph: PipelineBoundGraph, t: popxl.Tensor) -> popxl.Tensor:
        """A tensor that an operation reads, in the graph the operation moves to."""
        maker, made = self._made_in.get(t.id, (None, None))
        if maker is graph and made is not None:
            return made
        if t.id in graph.original_input_ids:
            return graph._input_of[t.id]
        if maker is None or made is None:
            self._outside[t.id] = t
        else:
            self._check_distance(t, graph)
            if t.id not in maker.original_output_ids:
                maker.add_output_tensor(made, t.id)
        return graph.add_variable_input(t, t.id in self._written_in.get(self._stage_of[graph], ()))

    def _check_distance(self, t: popxl.Tensor, reader: PipelineBoundGraph) -> None:
        made_in, read_in = self._made_at[t.id], self._stage_of[reader]
        if read_in != COPIES and read_in - made_in not in (0, 1):
            raise ValueError(
                f"{t.id} is made in stage {made_in} and read in stage {read_in}: only the next"
                " stage sees it, others restore it with `pipeline.stash_and_restore_tensor`"
            )

    # -- cycles --

    @popxl.in_sequence()
    def build(self) -> None:
        """Calls that fill the pipeline, a loop of full cycles, and calls that empty it."""
        n_fill = self.num_stages - 1
        self._registers = {
            name: _unset(self._made_in[name][1], "register") for name in self._register_ids()
        }
        self._connect(self._outside)
        self._connect(self._registers)
        for cycle in range(n_fill):
            self.cycle(0, cycle + 1)
        self.main_cycle()
        for cycle in range(n_fill):
            self.cycle(cycle + 1, self.num_stages)

    def _register_ids(self) -> list[str]:
        """Tensors that are read in another cycle than the one they are made in."""
        return [
            name
            for graph in self._graphs()
            for name in graph.original_output_ids
            if graph is self.ipu_copies or any(
                name in reader.original_input_ids
                for reader in self._graphs()
                if self._stage_of[reader] not in (self._stage_of[graph], COPIES)
            )
        ]  # fmt: skip

    def _graphs(self) -> list[PipelineBoundGraph]:
        named = (*self.loads.values(), *self.stages.values(), *self.stores.values())
        return [*named, self.ipu_copies]

    def _connect(self, tensors: Mapping[str, popxl.Tensor]) -> None:
        for graph in self._graphs():
            for name, t in tensors.items():
                graph.reconnect_input(name, t)

    def cycle(self, start: int, end: int) -> None:
        """One cycle of stages `start` to `end` - 1."""
        self._next = {}
        self.load(start, end)
        self.compute(start, end)
        self.store(start, end)
        if start < self.num_stages - 1:
            self.copy(start, end)
        self._registers = {**self._registers, **self._next}
        self._connect(self._registers)

    def load(self, start: int, end: int) -> None:
        """Load from the host what stages need."""
        self._call(self.loads, start, end)

    def compute(self, start: int, end: int) -> None:
        """Run what stages compute."""
        self._call(self.stages, start, end)

    def store(self, start: int, end: int) -> None:
        """Store to the host what stages made."""
        self._call(self.stores, start, end)

    def _call(self, graphs: Mapping[int, PipelineBoundGraph], start: int, end: int) -> None:
        for stage in range(start, end):
            if stage in graphs:
                graph = graphs[stage]
                self.remap_tensors(graph.original_output_ids, graph.call(), stage)

    def remap_tensors(
        self, original_ids: Iterable[str], new_outputs: Iterable[popxl.Tensor], stage: int
    ) -> None:
        """Tensors that a stage made: it reads them at once, later stages in the next cycle."""
        for name, t in zip(original_ids, new_outputs, strict=True):
            for graph in self._graphs():
                if self._stage_of[graph] in (stage, COPIES):
                    graph.reconnect_input(name, t)
            if name in self._registers:
                self._next[name] = t

    def copy(self, start: int, end: int) -> None:
        """Copy to other IPUs what the next stages read there."""
        if not self.ipu_copies.original_output_ids:
            return
        for name in self.ipu_copies.original_input_ids:
            if name in self._made_at and not start <= self._made_at[name] < end:
                self.ipu_copies.reconnect_input(name, _unset(self._made_in[name][1], "unused"))
        outputs = self.ipu_copies.call()
        self._next |= dict(zip(self.ipu_copies.original_output_ids, outputs, strict=True))

    def main_cycle(self) -> None:
        """The loop of full cycles."""
        names, before = list(self._registers), dict(self._registers)
        body, registers, outside = self.repeat_graph()
        with body, popxl.in_sequence(True):
            self._registers = registers
            self._connect({**outside, **registers})
            self.cycle(0, self.num_stages)
            for name in names:
                popxl.graph_output(self._registers[name])
        inputs = [*before.values(), *self._outside.values()]
        n_cycles = self.steps - (self.num_stages - 1)
        results = ops.repeat(body, n_cycles, *inputs)
        self._registers = dict(zip(names, results, strict=True))
        self._connect({**self._outside, **self._registers})

    def repeat_graph(
        self,
    ) -> tuple[popxl.Graph, dict[str, popxl.Tensor], dict[str, popxl.Tensor]]:
        """The body of the loop, empty, with inputs for registers and for tensors from outside."""
        body = self.ir.create_empty_graph("pipeline_cycle")
        written = set().union(*self._written_in.values())
        with body:
            registers, outside = (
                {
                    name: popxl.graph_input(
                        t.shape, t.dtype, t.name.replace("/", "_"), name in written, t.meta_shape
                    )
                    for name, t in tensors.items()
                }
                for tensors in (self._registers, self._outside)
            )
        return body, registers, outside


def _unset(like: popxl.Tensor, what: str) -> popxl.Tensor:
    """A tensor for cycles in which nothing meaningful is there yet."""
    return ops.init(like.shape, like.dtype, f"{like.name}_{what}".replace("/", "_"))


def pipeline_shape(n_stages: int, n_steps: int) -> np.ndarray:
    """int64[stages, cycles]: the micro-batch that a stage works on in a cycle, -1 for none."""
    cycles = np.arange(n_steps + n_stages - 1)
    result = cycles[None, :] - np.arange(n_stages)[:, None]
    return np.where((result >= 0) & (result < n_steps), result, -1)
