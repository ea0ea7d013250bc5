"""Which variables each step uses, and which it overwrites completely."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tremula.compiler.form import FrozenComputeSet, LoweredPrograms, Step, StepKind
from tremula.compiler.intervals import edge_bytes, merge
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
    graph = programs.graph
    of_set = [_intervals_of_set(cs) for cs in graph.compute_sets]
    result = []
    for step in programs.steps:
        reads, writes = _union(_of_tensors(step.reads)), _union(_of_tensors(step.writes))
        if step.kind is StepKind.EXECUTE:
            set_reads, set_writes = of_set[step.compute_set]
            reads, writes = _union([reads, set_reads]), _union([writes, set_writes])
        result.append(_access(step, reads, writes, graph.variables))
    return result


def _access(
    step: Step, reads: Intervals, writes: Intervals, variables: VariableTable
) -> VariableAccess:
    base, end = np.asarray(variables.base_bytes), np.asarray(variables.end_bytes)
    written_id = variables.ids_at(writes[0])
    covered = np.bincount(written_id, weights=writes[1] - writes[0], minlength=len(base))
    written = np.unique(written_id)
    is_whole = covered[written] == (end - base)[written]
    partial = written[~is_whole]
    if step.kind is StepKind.WRITE_UNDEF:
        partial = partial[:0]  # nothing is written: a part of it becomes undefined
    read = np.unique(variables.ids_at(reads[0]))
    used = np.union1d(np.union1d(read, partial), _metadata(read, written, variables))
    return VariableAccess(used, np.setdiff1d(written[is_whole], used))


def _metadata(read: Ints, written: Ints, variables: VariableTable) -> Ints:
    """8-bit floats are read and written by means of their metadata."""
    of = variables.metadata_of
    return np.array([of[v] for v in {*read.tolist(), *written.tolist()} if v in of], np.int64)


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
