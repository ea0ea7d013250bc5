"""Copy planning: two views of equal size → paired runs with equal counts."""

from dataclasses import dataclass

import numpy as np

from tremula.compiler.program_ir import CopyPlan
from tremula.poplar.tensors.layout import Slots, digest_of_runs, moved_runs, slots_of, variables_met
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable


def plan_copy(source: Tensor, destination: Tensor) -> CopyPlan:
    """How to copy one tensor to another in flattened order."""
    return pair_runs(
        source.runs(), destination.runs(), source.type.n_bytes, source.intersects_with(destination)
    )


@dataclass(frozen=True, slots=True)
class CopyTemplate:
    """A copy whose variables may be replaced."""

    plan: CopyPlan
    variables: tuple[int, ...]
    base_bytes: np.ndarray  # int64[n_variables]
    slots: tuple[Slots, Slots]  # of the plan's source and destination
    digest: bytes  # equal for copies that differ in their variables only

    def over(self, table: VariableTable, variables: tuple[int, ...]) -> CopyPlan:
        """The plan of the same copy between other variables."""
        if variables == self.variables:
            return self.plan
        bases = np.array([table.base_bytes[v] for v in variables], np.int64)
        shift, size = np.append(bases - self.base_bytes, 0), self.plan.n_bytes
        sides = zip((self.plan.source, self.plan.destination), self.slots, strict=True)
        source, destination = (moved_runs(runs, slots, shift, size) for runs, slots in sides)
        return CopyPlan(source, destination, size, self.plan.overlaps)


def variables_of_copy(source: Tensor, destination: Tensor) -> tuple[int, ...]:
    """Variables of both sides as they are met."""
    return tuple(dict.fromkeys((*variables_met(source), *variables_met(destination))))


def template_of_copy(source: Tensor, destination: Tensor) -> CopyTemplate:
    plan, table = plan_copy(source, destination), source.variables
    variables = variables_of_copy(source, destination)
    ids = {variable: slot for slot, variable in enumerate(variables)}
    size = plan.n_bytes
    sides = (plan.source, plan.destination)
    slots = (slots_of(sides[0], size, table, ids), slots_of(sides[1], size, table, ids))
    base = np.array([table.base_bytes[v] for v in variables], np.int64)
    digests = (
        digest_of_runs(r, s, np.append(base, 0) // size) for r, s in zip(sides, slots, strict=True)
    )
    digest = b" ".join((f"{size} {plan.overlaps}".encode(), *digests))
    return CopyTemplate(plan, variables, base, slots, digest)


def pair_runs(source: Runs, destination: Runs, n_bytes: int, overlaps: bool = False) -> CopyPlan:
    """Cut both sides at each other's boundaries."""
    same = len(source.count) == len(destination.count)
    if not same or not np.array_equal(source.count, destination.count):
        left, right = Pieces(source), Pieces(destination)
        # Both are sorted: a stable sort merges them, where a general union would hash each cut.
        cuts = np.sort(np.concatenate((left.start, right.start)), kind="stable")
        cuts = cuts[np.flatnonzero(np.diff(cuts, prepend=-1))]
        source = left.lookup_intervals(cuts[:-1], cuts[1:])[0]
        destination = right.lookup_intervals(cuts[:-1], cuts[1:])[0]
    return CopyPlan(source, destination, n_bytes, overlaps)


def contiguous_pairs(plan: CopyPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source byte, destination byte, n_bytes) of maximal pieces contiguous on both sides."""
    both = (plan.source.stride == 1) & (plan.destination.stride == 1) | (plan.source.count == 1)
    if bool(both.all()):
        size = plan.n_bytes
        return plan.source.start * size, plan.destination.start * size, plan.source.count * size
    source, destination = plan.source.addresses(), plan.destination.addresses()
    joins = (np.diff(source) == 1) & (np.diff(destination) == 1)
    first = np.flatnonzero(np.concatenate(([True], ~joins)))
    count = np.diff(np.append(first, len(source)))
    return source[first] * plan.n_bytes, destination[first] * plan.n_bytes, count * plan.n_bytes
