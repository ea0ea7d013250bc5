"""Control flow recovered from the flat instruction table: program trees, and the order of steps.

An executable keeps jumps, not programs, and a run keeps how often each step ran, not when:

    0 LOOP_BEGIN ×3 → 4        Repeat × 3                 executed: 3, 3
    1 step 0            tree     ├─ step 0       walk     0 1 0 1 0 1
    2 step 1            ────►    └─ step 1       ────►    (folded, if too long: 0 × 3, 1 × 3)
    3 LOOP_END → 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.program_ir import Op
from tremula.runtime.auto_report import RunRecord

_BRANCHES = (Op.BRANCH_ZERO, Op.BRANCH_NONZERO)


@dataclass(slots=True)
class ProgramNode:
    """A step, or a node that holds others."""

    kind: str
    name: str = ""
    n_times: int = 1  # of a Repeat; 0 where data decides
    step: int = -1
    source: str = ""
    callee: int = -1  # of a Call: the function's first instruction
    children: list["ProgramNode"] = field(default_factory=list)


def program_trees(executable: Executable) -> list[tuple[str, str, ProgramNode]]:
    """(kind of root, name, tree) of the programs, then of the functions they call."""
    builder = _Builder(executable)
    trees = [
        ("program", name, builder.tree(entry, f"{name}"))
        for name, entry in zip(executable.names, executable.entries, strict=True)
    ]
    calls = (row for row in builder.code if row[0] == Op.CALL)
    entries = list(dict.fromkeys(row[1] for row in calls))
    trees += [
        ("function", f"function {i}", builder.tree(entry, f"function {i}"))
        for i, entry in enumerate(entries)
    ]
    return trees


def program_columns(executable: Executable) -> dict[str, tuple]:
    """Rows of all trees, parents before children."""
    rows: list[tuple] = []
    for root, name, tree in program_trees(executable):
        _add_rows(rows, tree, f"{root}:{name}")
    names = ("id", "parent", "place", "kind", "name", "n_times", "step", "source", "root")
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _add_rows(rows: list[tuple], tree: ProgramNode, root: str) -> None:
    waiting = [(tree, -1, 0)]
    while waiting:
        node, parent, place = waiting.pop()
        number = len(rows)
        own = (node.kind, node.name, node.n_times, node.step, node.source)
        rows.append((number, parent, place, *own, root))
        waiting += [(child, number, i) for i, child in reversed(list(enumerate(node.children)))]


def program_of_step(programs: Mapping[str, tuple], n_steps: int) -> np.ndarray:
    """int64[n_steps]: each step's row of `program_columns`, or -1."""
    found = np.full(n_steps, -1, np.int64)
    step = np.array(programs["step"], np.int64)
    is_step = step >= 0
    found[step[is_step]] = np.array(programs["id"], np.int64)[is_step]
    return found


class _Builder:
    def __init__(self, executable: Executable):
        self.executable = executable
        self.code = executable.code.tolist()
        self.step_of = executable.step_of.tolist()
        self.cases = executable.switch_cases.tolist()
        # Loops that jump back: top -> the instruction that jumps, the outermost last.
        self.back: dict[int, int] = {}
        for i, (op, a, *_) in enumerate(self.code):
            if op == Op.LOOP_FOREVER or (op == Op.JUMP and a <= i):
                self.back[a] = i

    def tree(self, entry: int, name: str) -> ProgramNode:
        end = entry
        while self.code[end][0] not in (Op.END, Op.RETURN):
            end += 1
        root = ProgramNode("Sequence", name)
        self.fill(root, entry, end, 0)
        return root

    def fill(self, parent: ProgramNode, first: int, last: int, depth: int) -> None:
        """Add instructions first … last-1 as children; `depth` names of their paths are above."""
        pc = first
        while pc < last:
            name = self.name_at(pc, last, depth)
            if name is None:
                node, after = self.node(pc, last, depth)
                if node.kind != "Jump":
                    parent.children.append(node)
            else:
                after = self.after(pc, last)
                while after < last and self.name_at(after, last, depth) == name:
                    after = self.after(after, last)
                group = ProgramNode("Sequence", name)
                self.fill(group, pc, after, depth + 1)
                parent.children.append(group)
            pc = after

    def name_at(self, pc: int, last: int, depth: int) -> str | None:
        """The next enclosing name that everything beginning at this instruction shares."""
        after = self.after(pc, last)
        steps = self.step_of[pc:after]
        inside = [self.executable.steps[s].path for s in steps if s >= 0]
        if not inside or any(len(path) <= depth for path in (inside[0], inside[-1])):
            return None
        return inside[0][depth] if inside[0][depth] == inside[-1][depth] else None

    def after(self, pc: int, last: int) -> int:
        """The first instruction after the construct that begins here."""
        op, _, _, c, d, default = self.code[pc]
        if op == Op.LOOP_BEGIN:
            return c
        end = self.back.get(pc, -1)
        if pc < end < last:
            return end + 1
        if op in _BRANCHES:
            skips = self.code[c - 1]
            has_else = c - 1 > pc and skips[0] == Op.JUMP and skips[1] >= c
            return skips[1] if has_else else c
        if op == Op.SWITCH:
            starts = [target for _, target in self.cases[c:d]]
            ends = [*starts[1:], default]
            return max(self.code[ends[0] - 1][1] if starts else default, default)
        return pc + 1

    def node(self, pc: int, last: int, depth: int) -> tuple[ProgramNode, int]:
        """The node that begins at an instruction, and the first instruction after it."""
        op, a, b, c, _, _ = self.code[pc]
        if op == Op.LOOP_BEGIN:
            node = ProgramNode("Repeat", n_times=b)
            self.fill(node, pc + 1, c - 1, depth)
            return node, c
        end = self.back.get(pc, -1)
        if pc < end < last:
            return self.back_loop(pc, end, depth), end + 1
        if op == Op.CALL:
            return ProgramNode("Call", callee=a), pc + 1
        if op in _BRANCHES:
            return self.branch(pc, c, depth)
        if op == Op.SWITCH:
            return self.switch(pc, last, depth)
        return self.leaf(pc), pc + 1

    def back_loop(self, top: int, end: int, depth: int) -> ProgramNode:
        """RepeatWhile: condition, branch, body, jump; or Loop: body, jump."""
        del self.back[top]  # a loop inside may begin at the same instruction; seen once per tree
        kind = "Loop" if self.code[end][0] == Op.LOOP_FOREVER else "RepeatWhile"
        node = ProgramNode(kind, n_times=0)
        leaves = [
            i
            for i in range(top, end)
            if self.code[i][0] in _BRANCHES and self.code[i][3] == end + 1
        ]
        if kind == "RepeatWhile" and leaves:
            test = leaves[0]
            self.fill(node, top, test, depth)
            node.children.append(self.leaf(test))
            self.fill(node, test + 1, end, depth)
        else:
            self.fill(node, top, end, depth)
        self.back[top] = end
        return node

    def branch(self, pc: int, target: int, depth: int) -> tuple[ProgramNode, int]:
        node = ProgramNode("If", n_times=0)
        node.children.append(self.leaf(pc))
        skips = self.code[target - 1]
        has_else = target - 1 > pc and skips[0] == Op.JUMP and skips[1] >= target
        true_body = ProgramNode("Sequence", "true")
        self.fill(true_body, pc + 1, target - 1 if has_else else target, depth)
        node.children.append(true_body)
        if not has_else:
            return node, target
        false_body = ProgramNode("Sequence", "false")
        self.fill(false_body, target, skips[1], depth)
        node.children.append(false_body)
        return node, skips[1]

    def switch(self, pc: int, last: int, depth: int) -> tuple[ProgramNode, int]:
        _, _, _, c, d, default = self.code[pc]
        node = ProgramNode("Switch", n_times=0)
        node.children.append(self.leaf(pc))
        rows = self.cases[c:d]
        starts = [target for _, target in rows]
        ends = [*starts[1:], default]
        after = self.code[ends[0] - 1][1] if rows else default
        for (value, begin), end in zip(rows, ends, strict=True):
            case = ProgramNode("Sequence", f"case {value}")
            self.fill(case, begin, end - 1, depth)
            node.children.append(case)
        other = ProgramNode("Sequence", "default")
        self.fill(other, default, min(after, last) if after >= default else default, depth)
        node.children.append(other)
        return node, max(after, default)

    def leaf(self, pc: int) -> ProgramNode:
        number = self.step_of[pc]
        if number < 0:
            return ProgramNode("Jump")
        step = self.executable.steps[number]
        return ProgramNode(step.kind.value, step.name, step=number, source=step.source)


# -- the order in which steps ran ------------------------------------------------------------------


Ints = np.ndarray

# Runs are unrolled while the trace has at most this many entries more than there are steps.
UNROLLED_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """Entries in order of execution: entry i is `times[i]` executions of `step[i]`."""

    step: Ints  # int64[n]
    times: Ints  # int64[n]
    start: Ints  # int64[n, n_chips]: each chip's clock
    end: Ints
    first_entry: Ints  # int64[n_runs]
    n_entries: Ints


def trace_of(
    executable: Executable, runs: Sequence[RunRecord], costs: StepCosts, compute: Ints
) -> TraceColumns:
    """The trace of recorded runs, each unrolled if it is short enough, else folded."""
    most = len(executable.steps) + UNROLLED_ENTRIES
    steps, times, counts = [], [], []
    for run in runs:
        order, each = _run_order(executable, run, most - sum(counts))
        steps.append(order)
        times.append(each)
        counts.append(len(order))
    step = np.concatenate([np.empty(0, np.int64), *steps])
    each = np.concatenate([np.empty(0, np.int64), *times])
    begin = [run.cycles_from for run in runs]
    start, end = _clock(step, each, costs, compute, begin, np.array(counts, np.int64))
    n_entries = np.array(counts, np.int64)
    return TraceColumns(step, each, start, end, np.cumsum(n_entries) - n_entries, n_entries)


def _run_order(executable: Executable, run: RunRecord, most: int) -> tuple[Ints, Ints]:
    if int(run.executed.sum()) <= most:
        order = _unrolled(executable, run)
        if order is not None:
            return order, np.ones(len(order), np.int64)
    folded = np.flatnonzero(run.executed)
    return folded, run.executed[folded]


def _unrolled(executable: Executable, run: RunRecord) -> Ints | None:
    """Steps in order; None if no walk agrees with how often each ran."""
    walk = _Walk(executable, run.executed)
    order = walk.run(executable.entries[run.program])
    return None if order is None or walk.left.any() else np.array(order, np.int64)


class _Walk:
    """Follows the instructions; a branch goes where steps have executions left."""

    def __init__(self, executable: Executable, executed: Ints):
        self.code = executable.code.tolist()
        self.step_of = executable.step_of.tolist()
        self.cases = executable.switch_cases.tolist()
        self.left = executed.copy()
        # Every instruction of a walk is a step, or one of a few between two steps.
        self.patience = 20 * (int(executed.sum()) + len(self.code)) + 100

    def run(self, pc: int) -> list[int] | None:
        order: list[int] = []
        counters: dict[int, int] = {}
        calls: list[int] = []
        for _ in range(self.patience):
            step = self.step_of[pc]
            if step >= 0:
                if self.left[step] <= 0:
                    return None
                self.left[step] -= 1
                order.append(step)
            op = self.code[pc][0]
            if op == Op.END:
                return order
            pc = self._next(pc, op, counters, calls)
        return None

    def _next(self, pc: int, op: int, counters: dict[int, int], calls: list[int]) -> int:
        _, a, b, c, _, _ = self.code[pc]
        if op == Op.JUMP:
            return a
        if op == Op.CALL:
            calls.append(pc + 1)
            return a
        if op == Op.RETURN:
            return calls.pop()
        if op == Op.LOOP_BEGIN:
            counters[a] = b
            return pc + 1 if b > 0 else c
        if op == Op.LOOP_END:
            counters[a] -= 1
            return b if counters[a] > 0 else pc + 1
        return self._branch(pc, op)

    def _branch(self, pc: int, op: int) -> int:
        _, a, _, c, d, e = self.code[pc]
        if op == Op.LOOP_FOREVER:
            return a if self._is_left(a) else pc + 1
        if op == Op.SWITCH:
            targets = [target for _, target in self.cases[c:d]]
            return next((t for t in targets if self._is_left(t)), e)
        if op in (Op.BRANCH_ZERO, Op.BRANCH_NONZERO):
            return pc + 1 if self._is_left(pc + 1) and pc + 1 < c else c
        return pc + 1

    def _is_left(self, pc: int) -> bool:
        """Whether the first step from here on has executions left."""
        for _ in range(len(self.code)):
            if self.step_of[pc] >= 0:
                return bool(self.left[self.step_of[pc]] > 0)
            op = self.code[pc][0]
            if op in (Op.END, Op.RETURN):
                return False
            pc = self.code[pc][1] if op in (Op.JUMP, Op.CALL) else pc + 1
        return False


def _clock(
    step: Ints, times: Ints, costs: StepCosts, compute: Ints, begin: list[int], counts: Ints
) -> tuple[Ints, Ints]:
    """(start, end) of entries on each chip, as the engine's clock advances."""
    cycles = costs.sync + costs.exchange + compute
    n_chips = cycles.shape[1]
    if n_chips == 1:
        return _clock_of_one_chip(cycles[:, 0], costs, step, times, begin, counts)
    start, end = np.zeros((2, len(step), n_chips), np.int64)
    joins, is_active = costs.joins, costs.is_active
    first = 0
    for cycles_from, n_entries in zip(begin, counts.tolist(), strict=True):
        now = np.full(n_chips, cycles_from, np.int64)
        for i in range(first, first + n_entries):
            number, n = int(step[i]), int(times[i])
            once = cycles[number]
            if joins[number]:
                start[i] = now.max()
                now = now.max() + (n - 1) * once.max() + once
            else:
                start[i] = now
                now = now + n * once * is_active[number]
            end[i] = now
        first += n_entries
    return start, end


def _clock_of_one_chip(
    cycles: Ints, costs: StepCosts, step: Ints, times: Ints, begin: list[int], counts: Ints
) -> tuple[Ints, Ints]:
    is_counted = costs.joins | costs.is_active[:, 0]
    duration = cycles[step] * is_counted[step] * times
    end = np.cumsum(duration)
    first = np.cumsum(counts) - counts
    before = np.concatenate(([0], end))[first]
    end = end + np.repeat(np.array(begin, np.int64) - before, counts)
    return (end - duration)[:, None], end[:, None]
