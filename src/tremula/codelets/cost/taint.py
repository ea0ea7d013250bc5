"""Does a codelet's control flow depend on the data it computes with, or only on sizes and state?

Each name has two answers, (value, length): does its value come from data, and does its length?

    n = len(self.x)           # (no, no): the vertex table knows the length
    row = self.rows[n - 1]    # (yes, no): elements are data, the length is known
    k = int(row[0])           # (yes, no): a number, and it is data
    part = row[:k]            # (yes, yes)
    for v in part: …          # so this loop's trip count is data

A codelet whose branches, trip counts or slices depend on data can only be costed while it runs.
Answers only ever turn from no to yes, so repeating until nothing changes ends.
"""

import ast
from collections.abc import Mapping

from tremula.codelets.python.folding import folded_tree
from tremula.codelets.python.function_source import FunctionSource, Known, dotted_name
from tremula.codelets.python.kinds import KindTable
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import FieldSpec

Taints = dict[str, tuple[bool, bool]]  # name -> (value depends on data, length depends on data)
_SHAPED = frozenset("zeros ones empty full".split())


class TaintTable:
    """Which names of one function depend on data, given its parameters."""

    def __init__(
        self,
        function: FunctionSource,
        fields: Mapping[str, FieldSpec],
        parameters: Taints,
        kinds: KindTable,
    ) -> None:
        self.function, self.fields, self.kinds = function, fields, kinds
        self.tree = folded_tree(function)
        self.changed_fields = self._changed_fields()
        self.names: Taints = dict(parameters)
        before: Taints | None = None
        while before != self.names:
            before = dict(self.names)
            for node in walk(self.tree):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, self.value(node.value), self.length(node.value))
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, self.value(node.value), self.length(node.value))
        elif isinstance(node, ast.For):
            self._assign_loop(node.target, node.iter)
        elif isinstance(node, ast.Call) and isinstance(self._called(node), FunctionSource):
            for argument in node.args:  # a helper may write the vectors it is given
                is_vector = isinstance(argument, ast.Name) and self.kinds.of(argument).rank
                if is_vector and any(map(self.value, node.args)):
                    self._assign(argument, True, False)

    def _assign_loop(self, target: ast.expr, iterated: ast.expr) -> None:
        """Loop variables: the index of enumerate is never data."""
        called = self._called(iterated) if isinstance(iterated, ast.Call) else None
        name = called.name if isinstance(called, Known) else ""
        if isinstance(iterated, ast.Call) and isinstance(target, ast.Tuple):
            if name == "enumerate":
                self._assign(target.elts[0], self.length(iterated.args[0]), False)
                self._assign_loop(target.elts[1], iterated.args[0])
                return
            if name == "zip":
                for one, source in zip(target.elts, iterated.args, strict=False):
                    self._assign_loop(one, source)
                return
        self._assign(target, self.value(iterated), self.length(iterated))

    def _assign(self, target: ast.expr, value: bool, length: bool) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self._assign(one, value, length)
            return
        if isinstance(target, ast.Subscript):
            index = self.value(target.slice) if not isinstance(target.slice, ast.Slice) else False
            value, length, target = value or index, False, target.value
        if isinstance(target, ast.Name):
            old = self.names.get(target.id, (False, False))
            self.names[target.id] = (old[0] or value, old[1] or length)

    def _called(self, node: ast.Call) -> object:
        return self.function.bindings.get(dotted_name(node.func) or "")

    def value(self, node: ast.AST) -> bool:
        """Does the value of an expression depend on data?"""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, (False, False))[0]
        if isinstance(node, ast.Attribute):
            name = dotted_name(node) or ""
            spec = self.fields.get(node.attr) if name.startswith("self.") else None
            return spec is not None and (spec.is_edge or spec.name in self.changed_fields)
        if isinstance(node, ast.Call):
            target = self._called(node)
            if isinstance(target, Known) and target.name == "len":
                return self.length(node.args[0])
            is_random = isinstance(target, Known) and target.where == "random"
            return is_random or any(self.value(a) for a in node.args)
        return any(self.value(child) for child in ast.iter_child_nodes(node))

    def length(self, node: ast.expr) -> bool:
        """Does the length of a vector expression depend on data?"""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, (False, False))[1]
        if isinstance(node, ast.Attribute | ast.Constant):
            return False
        if isinstance(node, ast.Subscript):
            return self.length(node.value) or self.value(node.slice)
        if isinstance(node, ast.IfExp):
            parts = (node.body, node.orelse)
            return self.value(node.test) or any(map(self.length, parts))
        if isinstance(node, ast.Call):
            target = self._called(node)
            is_made = isinstance(target, Known) and target.name in _SHAPED
            name = target.name if isinstance(target, Known) else ""
            if is_made or name == "range" or isinstance(target, FunctionSource):
                return any(self.value(a) for a in node.args)
            return any(self.length(a) for a in node.args)
        parts = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        return any(map(self.length, parts))

    def is_data_dependent(self) -> bool:
        """Does any branch, loop or called function of this function depend on data?"""
        for node in walk(self.tree):
            if isinstance(node, ast.If | ast.While) and self.value(node.test):
                return True
            if isinstance(node, ast.For) and self.length(node.iter):
                return True
            if isinstance(node, ast.expr) and self._vector_length(node):
                return True
            if isinstance(node, ast.Call):
                target = self._called(node)
                is_helper = isinstance(target, FunctionSource)
                if is_helper and self.of_helper(target, node).is_data_dependent():
                    return True
        return False

    def _vector_length(self, node: ast.expr) -> bool:
        """A slice with bounds from data makes vector operations of unknown length."""
        is_slice = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
        return is_slice and self.length(node)

    def of_helper(self, helper: FunctionSource, call: ast.Call) -> "TaintTable":
        names = [a.arg for a in helper.tree().args.args]
        arguments = {
            name: (self.value(argument), self.length(argument))
            for name, argument in zip(names, call.args, strict=False)
        }
        return TaintTable(helper, {}, arguments, self.kinds.of_helper(helper, call))

    def _changed_fields(self) -> set[str]:
        """Fields that compute writes, or vectors it hands to a function that might."""
        changed: set[str] = set()
        for node in walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                base: ast.expr = node
                while isinstance(base, ast.Subscript):
                    base = base.value
                if isinstance(base, ast.Attribute):
                    changed.add(base.attr)
            if isinstance(node, ast.Call) and isinstance(self._called(node), FunctionSource):
                changed.update(
                    a.attr for a in node.args
                    if isinstance(a, ast.Attribute) and self.kinds.of(a).rank
                )  # fmt: skip
        return changed
