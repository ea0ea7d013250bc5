"""Transfers beside computing: tiles set aside for I/O hold the next inputs and the last outputs.

Of micro-batch k, in the order of the program; a tilde marks transfers that nothing waits for:

    take k ─ load k+1 ~ ─ store k-1 ~ ─ compute k ─ put k

`take` and `put` move data between the tiles for I/O and those that compute, and wait for the
transfers before them. The first micro-batch has nothing to store, the last nothing to load.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from torch import fx

from tremula.ir.nodes import schema_name
from tremula.ir.step import INPUT, OUTPUT, CapturedStep
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Call, Program, Repeat, Sequence

_MARK = "tremula::overlap"
_NO_OVERLAP = "no_overlap"
_OVER_ITERATIONS = "overlap_device_iteration_loop"


@dataclass
class Overlap:
    """The transfers of a micro-batch that run beside computing."""

    loads: Sequence = field(default_factory=lambda: Sequence(name="load"))
    takes: Sequence = field(default_factory=lambda: Sequence(name="take"))
    puts: Sequence = field(default_factory=lambda: Sequence(name="put"))
    stores: Sequence = field(default_factory=lambda: Sequence(name="store"))

    @property
    def is_used(self) -> bool:
        return bool(self.loads.steps or self.stores.steps)


@dataclass(frozen=True)
class StepParts:
    """What runs before the micro-batches of an update, for each of them, and after all."""

    before: Sequence
    micro: Sequence
    update: Sequence


def overlap_modes(step: CapturedStep) -> dict[fx.Node, str]:
    """How inputs and outputs overlap, those that do: poptorch.set_overlap_for_input and _output."""
    result = {}
    inputs = [n for s, n in zip(step.inputs, step.placeholders(), strict=True) if s.kind == INPUT]
    for node in inputs:
        marks = [user for user in node.users if _overlaps(user)]
        if marks and len(node.users) == len(marks):
            result[node] = str(marks[0].args[1])
    for slot, node in zip(step.outputs, step.results(), strict=True):
        if slot.kind == OUTPUT and _overlaps(node):
            result[node] = str(node.args[1])
    return result


def _overlaps(node: fx.Node) -> bool:
    return schema_name(node) == _MARK and node.args[1] != _NO_OVERLAP


def spans_iterations(modes: dict[fx.Node, str]) -> bool:
    """Whether transfers also run beside the update and across device iterations."""
    return _OVER_ITERATIONS in modes.values()


def overlapped_program(
    graph: Graph, overlap: Overlap, parts: StepParts, counts: tuple[int, int], *, spans: bool
) -> Program:
    """`counts` are device iterations and micro-batches in each. If `spans`, all are one run."""
    n_iterations, n_accumulation = counts
    calls = [Call(graph.add_function(p)) for p in (parts.before, parts.micro, parts.update)]

    def iteration(is_first: bool, is_last: bool) -> Sequence:
        flags = [
            (not (is_last and k == n_accumulation - 1), not (is_first and k == 0))
            for k in range(n_accumulation)
        ]
        return Sequence(calls[0], *_repeated(flags, micro_batch), calls[2])

    def micro_batch(loads: bool, stores: bool) -> Sequence:
        beside = [*([overlap.loads] if loads else []), *([overlap.stores] if stores else [])]
        return Sequence([overlap.takes, *beside, calls[1], overlap.puts])

    if not spans:
        whole = Sequence(overlap.loads, iteration(True, True), overlap.stores)
        return Repeat(n_iterations, whole)
    flags = [(k == 0, k == n_iterations - 1) for k in range(n_iterations)]
    return Sequence(overlap.loads, *_repeated(flags, iteration), overlap.stores)


def _repeated(
    flags: list[tuple[bool, bool]], make: Callable[[bool, bool], Program]
) -> list[Program]:
    """Runs of equal flags as loops."""
    result: list[Program] = []
    for flag, same in groupby(flags):
        count = len(list(same))
        result.append(Repeat(count, make(*flag)) if count > 1 else make(*flag))
    return result
