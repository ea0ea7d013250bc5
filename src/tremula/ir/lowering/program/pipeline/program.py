"""The program of a pipeline: stages that compute at the same time, then hand on their results."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Call, Copy, Function, Program, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat


@dataclass
class StageParts:
    """What a stage does in an iteration, in the order of the fields."""

    reads: Sequence = field(default_factory=Sequence)  # inputs, from their streams
    restores: Sequence = field(default_factory=Sequence)  # what it kept for itself earlier
    compute: Sequence = field(default_factory=Sequence)
    keeps: Sequence = field(default_factory=Sequence)
    gives: Sequence = field(default_factory=Sequence)  # outputs, to their streams
    shifts: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # to the next stage's chip
    writes: Sequence = field(default_factory=Sequence)  # resident tensors that micro-batches change


def pipeline_program(
    graph: Graph, stages: list[StageParts], n_micro_batches: int, stride: int = 1
) -> Program:
    """All micro-batches through all stages; idle stages are left out."""
    functions = [
        graph.add_function(Sequence(part.restores, part.compute, part.keeps, name=f"stage{number}"))
        for number, part in enumerate(stages)
    ]
    program = Sequence(name="pipeline")
    for rounds, count in iterations(len(stages), n_micro_batches, stride):
        bodies = [_iteration(stages, functions, active) for active in rounds]
        body = bodies[0] if len(bodies) == 1 else Sequence(bodies)
        program.add(Repeat(count, body) if count > 1 else body)
    return program


Active = tuple[int, ...]  # the stages that work in an iteration


def timetable(n_stages: int, n_micro_batches: int, stride: int = 1) -> list[Active]:
    """The stages at work in each iteration: at t, stage s works on micro-batch (t - s) / stride."""
    return [
        tuple(
            stage
            for stage in range(n_stages)
            if (t - stage) % stride == 0 and 0 <= (t - stage) // stride < n_micro_batches
        )
        for t in range(stride * (n_micro_batches - 1) + n_stages)
    ]


def iterations(
    n_stages: int, n_micro_batches: int, stride: int = 1
) -> Iterator[tuple[tuple[Active, ...], int]]:
    """(iterations, how often) in order: a full pipeline repeats every `stride` iterations."""
    every = timetable(n_stages, n_micro_batches, stride)
    rounds = (tuple(every[t : t + stride]) for t in range(0, len(every), stride))
    for of_round, same in groupby(rounds):
        yield of_round, len(list(same))


def _iteration(stages: list[StageParts], functions: list[Function], active: Active) -> Sequence:
    """Transfers synchronise all chips, so they are grouped; between them chips run independently.

    Later stages come first: a stage takes from a ring what an earlier one is about to replace.
    """
    body = Sequence(stages[number].reads for number in active)
    body.add(*(Call(functions[number]) for number in reversed(active)))
    body.add(*(stages[number].gives for number in active))
    body.add(*_shift(stages, active))
    body.add(*(stages[number].writes for number in active))
    return body


def _shift(stages: list[StageParts], active: Active) -> list[Copy]:
    """One copy for all stages and values of a type: each costs a sync of all chips."""
    moves = [move for number in active for move in stages[number].shifts]
    types = dict.fromkeys(source.type for source, _ in moves)
    return [
        Copy(
            concat([source for source, _ in moves if source.type == type]),
            concat([target for _, target in moves if target.type == type]),
            name="shift",
        )
        for type in types
    ]
