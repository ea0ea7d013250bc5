"""Program trees recovered from the flat instruction table, which keeps jumps, not programs.

0 LOOP_BEGIN ×3 → 4        Repeat × 3
1 step 0            tree     ├─ step 0
2 CALL 7            ────►    └─ Call
3 LOOP_END → 1                   └─ the function's tree, with what this call took
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.program_ir import Opcode
from tremula.compiler.report.phases import PHASES
from tremula.vision.report.timeline.script import Regions, Routes

Ints = np.ndarray

_BRANCHES = (Opcode.BRANCH_ZERO, Opcode.BRANCH_NONZERO)


@dataclass(slots=True)
class ProgramNode:
    """A step, or a node that holds others."""

    kind: str
    name: str = ""
    n_times: int = 1  # of a Repeat; 0 where data decides
    step: int = -1
    source: str = ""
    caller: int = -1  # of a Call: its instruction
    children: list["ProgramNode"] = field(default_factory=list)


class _Node(NamedTuple):
    """A node of a region's tree, in depth-first order."""

    parent: int
    place: int  # among its parent's children
    node: ProgramNode


def _flat(tree: ProgramNode) -> list[_Node]:
    rows: list[_Node] = []
    waiting = [(tree, -1, 0)]
    while waiting:
        node, parent, place = waiting.pop()
        number = len(rows)
        rows.append(_Node(parent, place, node))
        waiting += [(child, number, i) for i, child in reversed(list(enumerate(node.children)))]
    return rows


class ProgramRows:
    """Rows of all programs, parents before children, functions under each of their calls."""

    def __init__(self, executable: Executable, routes: Routes, regions: Regions, contexts: list):
        self.rows: list[tuple] = []
        self.depth: list[int] = []
        self.place: list[int] = []  # of steps: where in the program they run; -1 for others
        self._contexts, self._regions = contexts, regions
        self._columns = {n: routes.columns[n].tolist() for n in ("first_child", "child", "base")}
        self._numbers = routes.columns["call_number"].tolist()
        n_programs = len(executable.entries)
        names = [*executable.names, *(f"function {i}" for i in range(len(regions.entries)))]
        builder = _FlowBuilder(executable)
        self._names = names[: len(regions.entries)]
        self._trees = [
            _flat(builder.tree(entry, name))
            for entry, name in zip(regions.entries, names, strict=False)
        ]
        for number, context in enumerate(contexts):
            if context.parent < 0:
                kind = "program" if context.region < n_programs else "function"
                self._add(number, -1, 0, 0, f"{kind}:{self._names[context.region]}")
        self._n_programs = n_programs

    def _add(self, context: int, parent: int, place: int, depth: int, root: str) -> None:
        """The tree of a context, below a row."""
        region, base = self._contexts[context].region, self._columns["base"][context]
        own: list[int] = []  # row of each of the region's nodes
        for node in self._trees[region]:
            number, of = len(self.rows), node.node
            above = own[node.parent] if node.parent >= 0 else parent
            under = self.depth[above] + 1 if above >= 0 else depth
            own.append(number)
            where = node.place if node.parent >= 0 else place
            facts = (of.kind, of.name, of.n_times, of.step, of.source)
            self.rows.append((number, above, where, *facts, root))
            self.depth.append(under)
            self.place.append(base + of.step if of.step >= 0 else -1)
            if of.caller >= 0:
                at = self._columns["first_child"][context] + self._numbers[of.caller]
                child = self._columns["child"][at]
                if self._contexts[child].parent >= 0:
                    self._add(child, number, 0, under + 1, root)

    def columns(self, of_place: Ints) -> dict[str, Sequence | Ints]:
        """All columns; `of_place` int64[n_places, 5] is what is on the critical path."""
        names = ("id", "parent", "place", "kind", "name", "n_times", "step", "source", "root")
        result = dict(zip(names, zip(*self.rows, strict=True), strict=True))
        cycles, depth = self.sums(of_place), np.array(self.depth, np.int64)
        phases = {f"path_{name}": cycles[:, i] for i, name in enumerate(PHASES)}
        return {**result, "depth": depth, "total_cycles": cycles.sum(axis=1), **phases}

    def sums(self, of_place: Ints) -> Ints:
        """int64[n_rows, 5]: cycles of everything at or below each row, of int64[n_places, 5]."""
        place, depth = np.array(self.place), np.array(self.depth, np.int64)
        parent = np.array([row[1] for row in self.rows], np.int64)
        cycles = np.zeros((len(place), len(PHASES)), np.int64)
        cycles[place >= 0] = of_place[place[place >= 0]]
        for level in range(int(depth.max(initial=0)), 0, -1):
            mine = np.flatnonzero(depth == level)
            np.add.at(cycles, parent[mine], cycles[mine])
        return cycles


def program_of_step(programs: Mapping[str, Sequence | Ints], n_steps: int) -> np.ndarray:
    """int64[n_steps]: each step's first row of `programs`, or -1."""
    result = np.full(n_steps, -1, np.int64)
    step = np.array(programs["step"], np.int64)
    rows = np.flatnonzero(step >= 0)[::-1]
    result[step[rows]] = rows  # the first is written last
    return result


class _FlowBuilder:
    def __init__(self, executable: Executable):
        self.executable = executable
        self.code = executable.code.tolist()
        self.step_of = executable.step_of.tolist()
        self.cases = executable.switch_cases.tolist()
        # Loops that jump back: top -> the instruction that jumps, the outermost last.
        self.back: dict[int, int] = {}
        for i, (op, a, *_) in enumerate(self.code):
            if op == Opcode.LOOP_FOREVER or (op == Opcode.JUMP and a <= i):
                self.back[a] = i

    def tree(self, entry: int, name: str) -> ProgramNode:
        end = entry
        while self.code[end][0] not in (Opcode.END, Opcode.RETURN):
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
        if op == Opcode.LOOP_BEGIN:
            return c
        end = self.back.get(pc, -1)
        if pc < end < last:
            return end + 1
        if op in _BRANCHES:
            skips = self.code[c - 1]
            has_else = c - 1 > pc and skips[0] == Opcode.JUMP and skips[1] >= c
            return skips[1] if has_else else c
        if op == Opcode.SWITCH:
            starts = [target for _, target in self.cases[c:d]]
            ends = [*starts[1:], default]
            return max(self.code[ends[0] - 1][1] if starts else default, default)
        return pc + 1

    def node(self, pc: int, last: int, depth: int) -> tuple[ProgramNode, int]:
        """The node that begins at an instruction, and the first instruction after it."""
        op, _, b, c, _, _ = self.code[pc]
        if op == Opcode.LOOP_BEGIN:
            node = ProgramNode("Repeat", n_times=b)
            self.fill(node, pc + 1, c - 1, depth)
            return node, c
        end = self.back.get(pc, -1)
        if pc < end < last:
            return self.back_loop(pc, end, depth), end + 1
        if op == Opcode.CALL:
            return ProgramNode("Call", caller=pc), pc + 1
        if op in _BRANCHES:
            return self.branch(pc, c, depth)
        if op == Opcode.SWITCH:
            return self.switch(pc, last, depth)
        return self.leaf(pc), pc + 1

    def back_loop(self, top: int, end: int, depth: int) -> ProgramNode:
        """RepeatWhile: condition, branch, body, jump; or Loop: body, jump."""
        del self.back[top]  # a loop inside may begin at the same instruction; seen once per tree
        kind = "Loop" if self.code[end][0] == Opcode.LOOP_FOREVER else "RepeatWhile"
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
        has_else = target - 1 > pc and skips[0] == Opcode.JUMP and skips[1] >= target
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
