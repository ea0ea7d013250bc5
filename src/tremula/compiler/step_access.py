"""Which variables each step uses, and which it overwrites completely."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tremula.compiler.form import FrozenComputeSet, LoweredPrograms, Step, StepKind
from tremula.compiler.intervals import edge_bytes, merge
from tremula.poplar.compute_set import Modelled
from tremula.poplar.tensor import Tensor
from tremula.poplar.variables import VariableTable

Ints = np.ndarray
Intervals = tuple[Ints, Ints]


class VariableAccess(NamedTuple):
    """Variable ids of one step.

    A variable that is written in part is used: the rest of it must survive.
    """

    used: Ints
    overwritten: Ints  # every byte written, none read


def accesses_of(programs: LoweredPrograms) -> list[VariableAccess]:
    """One per static step."""
    sets, places = programs.graph.compute_sets, _Places(programs.graph.variables)
    copy_of_step = programs.copies_by_step()
    known: dict[object, VariableAccess] = {}
    result = []
    for number, step in enumerate(programs.steps):
        key, variables = _kind(programs, number, copy_of_step.get(number))
        slots = known.get(key)
        if slots is None:
            access = places.access(step, *_intervals_of_step(step, sets))
            slots = known[key] = access if variables is None else _slots(access, variables)
        if variables is None:
            result.append(slots)
        else:
            result.append(VariableAccess(*(np.sort(variables[s]) for s in slots)))
    return result


def _kind(programs: LoweredPrograms, number: int, copy: int | None) -> tuple[object, Ints | None]:
    """A key of steps that access the same slots, and the variables in these; None: no slots."""
    step = programs.steps[number]
    if copy is not None:
        alike = programs.alike_copies[copy]
        return ("copy", alike.first), np.array(alike.variables, np.int64)
    if step.kind is not StepKind.EXECUTE or step.reads or step.writes:
        return ("step", number), None
    of = programs.graph.compute_sets[step.compute_set].contents
    if isinstance(of, Modelled):
        return of.model, np.array(of.variables, np.int64)
    return ("set", step.compute_set), None


def _slots(access: VariableAccess, variables: Ints) -> VariableAccess:
    """An access to variables that take the place of a model's, as one to its slots."""
    order = np.argsort(variables)
    return VariableAccess(*(order[np.searchsorted(variables, ids, sorter=order)] for ids in access))


def _intervals_of_step(
    step: Step, sets: tuple[FrozenComputeSet, ...]
) -> tuple[Intervals, Intervals]:
    """What a step reads, and what it writes."""
    reads, writes = list(_of_tensors(step.reads)), list(_of_tensors(step.writes))
    if step.kind is StepKind.EXECUTE:
        set_reads, set_writes = _intervals_of_set(sets[step.compute_set])
        reads.append(set_reads)
        writes.append(set_writes)
    return _union(reads), _union(writes)


class _Places:
    """The variable table as arrays, made once."""

    def __init__(self, variables: VariableTable):
        self.base = np.asarray(variables.base_bytes, np.int64)
        self.n_bytes = np.asarray(variables.end_bytes, np.int64) - self.base
        self.metadata_of = variables.metadata_of

    def ids_at(self, begin: Ints) -> Ints:
        return np.searchsorted(self.base, begin, side="right") - 1

    def access(self, step: Step, reads: Intervals, writes: Intervals) -> VariableAccess:
        written, place = np.unique(self.ids_at(writes[0]), return_inverse=True)
        covered = np.bincount(place, weights=writes[1] - writes[0], minlength=len(written))
        is_whole = covered == self.n_bytes[written]
        partial = written[~is_whole]
        if step.kind is StepKind.WRITE_UNDEF:
            partial = partial[:0]  # nothing is written: a part of it becomes undefined
        read = np.unique(self.ids_at(reads[0]))
        parts = (read, partial, _metadata(read, written, self.metadata_of))
        used = np.unique(np.concatenate(parts))
        return VariableAccess(used, np.setdiff1d(written[is_whole], used, assume_unique=True))


def _metadata(read: Ints, written: Ints, of: Mapping[int, int]) -> Ints:
    """8-bit floats are read and written by means of their metadata."""
    touched = {*read.tolist(), *written.tolist()} if of else ()
    return np.array([of[v] for v in touched if v in of], np.int64)


def _intervals_of_set(compute_set: FrozenComputeSet) -> tuple[Intervals, Intervals]:
    reads, writes = [], []
    for table in compute_set.tables:
        for spec in table.codelet.spec.fields:
            if spec.is_edge:
                edges = edge_bytes(table, spec)
                touched = merge(edges.begin, edges.end)
                if spec.is_read:
                    reads.append(touched)
                if spec.is_written:
                    writes.append(touched)
    return _union(reads), _union(writes)


def _of_tensors(tensors: Iterable[Tensor]) -> Iterator[Intervals]:
    return (tensor.byte_intervals() for tensor in tensors)


def _union(parts: Iterable[Intervals]) -> Intervals:
    nothing = (np.empty(0, np.int64),) * 2
    begin, end = zip(*[nothing, *parts], strict=True)
    return merge(np.concatenate(begin), np.concatenate(end))
