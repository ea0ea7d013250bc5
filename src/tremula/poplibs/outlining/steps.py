"""Steps of a program without their variables: which are alike, what they read and write."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from tremula.base.source import Source
from tremula.base.types import QUARTER
from tremula.compiler.lower.copies import plan_copy
from tremula.compiler.passes.code_size import bytes_of_copy, bytes_of_tables
from tremula.poplar.graph import Graph
from tremula.poplar.graph_state import GraphState
from tremula.poplar.programs import Copy, Execute, Function, Program
from tremula.poplar.target import Target
from tremula.poplar.tensors.layout import variables_met
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import ByteTileMap
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.compute_set import ComputeSet, TemplateInstance
from tremula.poplibs.poputil.layout_key import CallKey, NotReplayable
from tremula.poplibs.poputil.replay import layouts_of

Ints = np.ndarray
_STEP_BYTES = 8  # the calls of an exchange and of a compute set in the control code


@dataclass(frozen=True, slots=True)
class OutlinedKind:
    """What alike steps have in common. Slots are their variables in the order they are met."""

    number: int
    uses: tuple[bool, ...]  # of each slot: read, or written in part
    writes: tuple[bool, ...]
    n_code_bytes: float  # about, on an average tile
    n_elems: int  # that its vertices touch, or that it copies


@dataclass(frozen=True, slots=True)
class OutlinedStep:
    """A step of a kind over variables; of kind None if nothing can be like it."""

    program: Program
    kind: OutlinedKind | None
    variables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A graph's tiles and variables, as the sizes of its code need them."""

    target: Target
    state: GraphState

    @property
    def variables(self) -> VariableTable:
        return self.state.variables

    @property
    def tile_map(self) -> ByteTileMap:
        return self.state.tile_map.resolve()


class Steps:
    """Numbers the kinds of steps of one graph."""

    def __init__(self, graph: Graph):
        self.state, self.n_tiles = graph.state, graph.target.tiles_per_ipu
        self.mapped = _Mapped(graph.target, graph.state)
        self.layouts = layouts_of(graph)
        self._kinds: dict[object, OutlinedKind] = {}
        self._transferred: set[int] = set()  # variables that transfers read or write

    def of(self, programs: list[Program]) -> list[OutlinedStep]:
        """Programs as steps; what occurs once has no kind, and is not looked at closer."""
        self._transferred |= self._read_or_written_by_transfers(programs)
        keys = [self._key(program) for program in programs]
        n_alike = Counter(key for key, _ in keys)
        return [
            OutlinedStep(program, None, variables)
            if key is None or n_alike[key] == 1
            else OutlinedStep(program, self._kind_of(program, key, variables), variables)
            for program, (key, variables) in zip(programs, keys, strict=True)
        ]

    def _read_or_written_by_transfers(self, programs: list[Program]) -> set[int]:
        transfers = (p for p in programs if isinstance(p, Copy) and not _is_between_tensors(p))
        return {v for p in transfers for v in variables_in(p, self.state.variables)}

    def _key(self, program: Program) -> tuple[object, tuple[int, ...]]:
        """What alike steps have in common, None if nothing can be like this one; its variables."""
        result = None
        if isinstance(program, Execute) and program.result is None:
            result = self._key_of_execute(program)
        elif isinstance(program, Copy):
            result = self._key_of_copy(program)
        return result or (None, tuple(variables_in(program, self.state.variables)))

    def _key_of_execute(self, program: Execute) -> tuple[object, tuple[int, ...]] | None:
        of, types = program.compute_set.instance, self.state.variables.types
        if of is None or any(types[v] is QUARTER for v in of.variables):
            return None
        return (of.template, *map(self.layouts.of, of.variables)), of.variables

    def _key_of_copy(self, program: Copy) -> tuple[object, tuple[int, ...]] | None:
        if not _is_between_tensors(program):
            return None
        key = CallKey(self.layouts)
        try:
            views = key.of((program.source_of_data, program.destination))
        except NotReplayable:
            return None
        if not self._transferred.isdisjoint(key.numbers):
            return None  # inside a function it would wait for a transfer that goes on beside others
        return ("copy", views, key.of_variables()), tuple(key.numbers)

    def _kind_of(self, program: Program, key: object, variables: tuple[int, ...]) -> OutlinedKind:
        if key not in self._kinds:
            if isinstance(program, Execute):
                of = program.compute_set.instance
                assert of is not None, "what has a key is an instance"
                self._kinds[key] = self._kind_of_instance(of, program.compute_set.source)
            else:
                assert isinstance(program, Copy), "what else has a key is a copy"
                self._kinds[key] = self._kind_of_copy(program, variables)
        return self._kinds[key]

    def _kind_of_instance(self, of: TemplateInstance, source: Source) -> OutlinedKind:
        n_slots = len(of.variables)
        n_read, n_written = np.zeros(n_slots + 1, np.int64), np.zeros(n_slots + 1, np.int64)
        n_elems = 0
        for table, slots_of in zip(of.template.tables, of.template.slots, strict=True):
            for spec in table.codelet.spec.fields:
                if not spec.is_edge:
                    continue
                runs, slots = table.edges[spec.name].runs, slots_of[spec.name]
                touched = _per_slot(slots, runs.count, n_slots) * spec.type.n_bytes
                n_read += touched * spec.is_read
                n_written += touched * spec.is_written
                n_elems += int(runs.count.sum())
        tables = of.template.tables_over(of.table, of.variables, source)
        n_bytes = bytes_of_tables(tables, self.mapped)
        return self._kind(of.variables, n_read[:-1], n_written[:-1], n_bytes, n_elems)

    def _kind_of_copy(self, program: Copy, variables: tuple[int, ...]) -> OutlinedKind:
        source, target = program.source_of_data, program.destination
        assert isinstance(source, Tensor), "between tensors"
        assert isinstance(target, Tensor), "between tensors"
        n_read, n_written = (self._bytes_of(t, variables) for t in (source, target))
        n_bytes = bytes_of_copy(plan_copy(source, target), self.mapped)
        return self._kind(variables, n_read, n_written, n_bytes, target.n_elems)

    def _bytes_of(self, tensor: Tensor, variables: tuple[int, ...]) -> Ints:
        """int64[n_slots]: how much of each variable a tensor covers, repeats counted."""
        runs, n_bytes = tensor.runs(), tensor.type.n_bytes
        ids = tensor.variables.ids_at(runs.start * n_bytes)
        order = np.argsort(variables)
        slots = order[np.searchsorted(np.array(variables)[order], ids)]
        return _per_slot(slots, runs.count, len(variables))[:-1] * n_bytes

    def _kind(
        self,
        variables: tuple[int, ...],
        n_read: Ints,
        n_written: Ints,
        n_bytes: float,
        n_elems: int,
    ) -> OutlinedKind:
        table = self.state.variables
        sizes = np.array([table.end_bytes[v] - table.base_bytes[v] for v in variables], np.int64)
        writes = n_written > 0
        uses = (n_read > 0) | (writes & (n_written < sizes))
        number, code = len(self._kinds), _STEP_BYTES + n_bytes
        return OutlinedKind(number, tuple(uses.tolist()), tuple(writes.tolist()), code, n_elems)


def _is_between_tensors(copy: Copy) -> bool:
    """Whether it is no transfer from or to a host or a remote buffer."""
    return isinstance(copy.source_of_data, Tensor) and isinstance(copy.destination, Tensor)


def _per_slot(slots: int | Ints, count: Ints, n_slots: int) -> Ints:
    """int64[n_slots + 1]: elements of each slot; the last entry is for slot -1."""
    if isinstance(slots, int):
        total = np.zeros(n_slots + 1, np.int64)
        total[slots] = count.sum()
        return total
    place = np.where(slots < 0, n_slots, slots)
    return np.bincount(place, weights=count, minlength=n_slots + 1).astype(np.int64)


def variables_in(value: object, table: VariableTable) -> Iterator[int]:
    """Every variable that a program, whatever it is made of, can touch."""
    if isinstance(value, Tensor):
        yield from variables_met(value) if value.n_elems else ()
    elif isinstance(value, ComputeSet):
        yield from _variables_of_set(value, table)
    elif isinstance(value, Function):
        yield from variables_in(value.program, table)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from variables_in(part, table)
    elif isinstance(value, dict):
        yield from variables_in(list(value.values()), table)
    elif isinstance(value, Program) and is_dataclass(value):
        for field in fields(value):
            if field.name != "repeats":
                yield from variables_in(getattr(value, field.name), table)


def _variables_of_set(compute_set: ComputeSet, table: VariableTable) -> Iterator[int]:
    if compute_set.instance is not None:
        yield from compute_set.instance.variables
        return
    for frozen in compute_set.frozen_tables():
        for name, edge in frozen.edges.items():
            n_bytes = frozen.codelet.spec.field(name).type.n_bytes
            yield from np.unique(table.ids_at(edge.runs.start * n_bytes)).tolist()
