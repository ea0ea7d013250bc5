"""Program trees, found again from the flat instruction table and the names around steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.program_ir import Op

_BRANCHES = (Op.BRANCH_ZERO, Op.BRANCH_NONZERO)


@dataclass(slots=True)
class ProgramNode:
    """A node: a step where it has one, else something that holds others."""

    kind: str
    name: str = ""
    n_times: int = 1  # of a Repeat; 0 where data decides
    step: int = -1
    source: str = ""
    callee: int = -1  # of a Call: the function's first instruction
    children: list["ProgramNode"] = field(default_factory=list)


def program_trees(executable: Executable) -> list[tuple[str, str, ProgramNode]]:
    """(root kind, name, tree): the programs, then the functions they call."""
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
    """int64[n_steps]: the row of `program_columns` that is a step, or -1."""
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
        """Instructions first … last-1 as children; `depth` names of paths are above already."""
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
        """The enclosing name, one deeper, that all of what begins here has in common."""
        after = self.after(pc, last)
        steps = self.step_of[pc:after]
        inside = [self.executable.steps[s].path for s in steps if s >= 0]
        if not inside or any(len(path) <= depth for path in (inside[0], inside[-1])):
            return None
        return inside[0][depth] if inside[0][depth] == inside[-1][depth] else None

    def after(self, pc: int, last: int) -> int:
        """The first instruction behind what begins at an instruction."""
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
        """The node that begins at an instruction, and the first one behind it."""
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
