"""Put counting into a codelet's code: beside the computation, or in place of it.

Costs belong to straight-line groups of statements, because only these can be bundled (slots.py).
Take a compute whose loop costs `b` slots each time round:

    for i in range(n):                    for i in range(n):              count(a)
        total += self.x[i] * k                total += self.x[i] * k      count(terms: range(n), b)
    if n > 4:                                 count(b)                    count(c)
        self.y = total                    count(c)                        if n > 4:
                                          if n > 4:                           count(d)
                                              self.y = total
                                              count(d)
    as written                            instrumented                    sliced

`instrumented` keeps every statement and adds counts; the kernel COUNTED runs it. `sliced` keeps the
counts and what they depend on, a program slice; the kernel COST runs it without any data. `total`
is gone, because no count needs it, and a loop that costs the same each time round has become one
multiplication. Slicing repeats until nothing changes: first no assignment is kept, then those of
names that the kept loops, branches and counts use, then those of names that these use, and so on.
`Writer` turns both results into text.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from tremula.codelets.cost import slots
from tremula.codelets.cost.pricing import Price, Pricer
from tremula.codelets.cost.slots import Slots
from tremula.codelets.python.function_source import FunctionSource, Known, dotted_name
from tremula.codelets.python.kinds import ALLOCATIONS, INT, KindTable
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import FieldSpec, VertexBase

_JUMPS = (ast.Return, ast.Break, ast.Continue)
_CONTROL = (ast.If, ast.For, ast.While)
Keep = Callable[[ast.stmt], bool]


class CycleCount(ast.stmt):
    """A statement that adds cycles: `n_slots`, and for each (vector, slots) term slots × length."""

    _fields = ()

    def __init__(self, n_slots: int, terms: tuple[tuple[ast.expr, int], ...] = ()) -> None:
        super().__init__()
        self.n_slots, self.terms = n_slots, terms


class CountHelper(ast.stmt):
    """A statement that adds the cycles of a helper call, without making the call."""

    _fields = ()

    def __init__(self, helper: FunctionSource, arguments: list[ast.expr]) -> None:
        super().__init__()
        self.helper, self.arguments = helper, arguments


@dataclass(frozen=True)
class SlicedFunction:
    """A function reduced to its cost, and the names that must have values for it."""

    body: list[ast.stmt]
    parameters: list[str]
    needed: frozenset[str]


class CostModel:
    """Prices a codelet's compute and the functions it calls."""

    def __init__(
        self, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase
    ) -> None:
        self.compute = compute
        self.is_supervisor = base is VertexBase.SUPERVISOR_VERTEX
        self.branch = slots.SUPERVISOR_BRANCH if self.is_supervisor else slots.BRANCH
        self.trees: dict[int, ast.FunctionDef] = {}
        self.pricers: dict[int, Pricer] = {}
        by_name = {f.name: f for f in fields}
        worker = {a.arg: INT for a in compute.tree().args.args[1:]}
        self._enter(compute, KindTable(compute, by_name, worker))

    def _enter(self, function: FunctionSource, kinds: KindTable) -> None:
        """Add a function that is new, and through its calls the functions it uses."""
        tree = self.trees[id(function)] = kinds.tree
        self.pricers[id(function)] = Pricer(function, kinds, self.branch)
        for node in walk(tree):
            if isinstance(node, ast.Call):
                target = function.bindings.get(dotted_name(node.func) or "")
                if isinstance(target, FunctionSource) and id(target) not in self.pricers:
                    self._enter(target, kinds.of_helper(target, node))

    def kinds(self, function: FunctionSource) -> KindTable:
        return self.pricers[id(function)].kinds

    def static_slots(self, helper: FunctionSource) -> Slots | None:
        """The slots of a function that always costs the same, else None."""
        tree, pricer = self.trees[id(helper)], self.pricers[id(helper)]
        if any(isinstance(node, _CONTROL) for node in walk(tree)):
            return None
        price = pricer.of_statements(tree.body)
        total = price.slots
        for call in price.calls:
            inner = self.static_slots(self._target(helper, call))
            if inner is None:
                return None
            total += inner
        return None if price.terms else total

    def _target(self, function: FunctionSource, call: ast.Call) -> FunctionSource:
        target = function.bindings[dotted_name(call.func) or ""]
        assert isinstance(target, FunctionSource), target
        return target

    def code(self) -> tuple[int, dict[str, int]]:
        """Instructions of the code, and of each routine that is called.

        Every operation is written once: loops are not unrolled.
        """
        total = Slots()
        for key, tree in self.trees.items():
            total += _static_total(tree.body, self.pricers[key])
        n_instructions = slots.VERTEX_OVERHEAD_SLOTS + total.n_instructions
        routines = {name: slots.n_routine_instructions(name) for name in sorted(total.routines)}
        return n_instructions, routines

    # -- the two ways of counting

    def instrumented(self, function: FunctionSource) -> list[ast.stmt]:
        """The function's statements with counts among them."""
        return _Counter(self, function, lambda _: True, False).block(self._body(function))

    def sliced(self, function: FunctionSource) -> SlicedFunction:
        """The function's counts, and only what they need."""
        needed: set[str] = set()
        made_here = _local_arrays(self.trees[id(function)], function)

        def is_needed(statement: ast.stmt) -> bool:
            return bool(_targets(statement, made_here) & needed)

        while True:
            body = _Counter(self, function, is_needed, True).block(self._body(function))
            used = _used_names(body)
            if used <= needed:
                break
            needed |= used
        parameters = [a.arg for a in self.trees[id(function)].args.args]
        return SlicedFunction(body, [p for p in parameters if p in needed], frozenset(needed))

    def can_slice(self) -> bool:
        """False if a count needs the length of a vector that exists only once data is computed."""
        for key, pricer in self.pricers.items():
            function = pricer.function
            assert id(function) == key, function.name
            for statement in self.sliced(function).body:
                for node in walk(statement):
                    is_set = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
                    if is_set and node.value and self._computes_vector(node.value, function):
                        return False
        return True

    def _computes_vector(self, value: ast.expr, function: FunctionSource) -> bool:
        has_rank = self.kinds(function).of(value).rank > 0
        return has_rank and not (_is_view(value) or _is_allocation(value, function))

    def _body(self, function: FunctionSource) -> list[ast.stmt]:
        return self.trees[id(function)].body


class _Counter:
    """One walk over one function."""

    def __init__(
        self, model: CostModel, function: FunctionSource, keep: Keep, is_slice: bool
    ) -> None:
        self.model, self.function, self.keep, self.is_slice = model, function, keep, is_slice
        self.pricer = model.pricers[id(function)]

    def block(self, statements: list[ast.stmt], extra: Slots = slots.NOTHING) -> list[ast.stmt]:
        """Statements with counts; `extra` is charged with the first straight-line group."""
        out: list[ast.stmt] = []
        group: list[ast.stmt] = []
        for statement in [*statements, None]:
            if statement is not None and not isinstance(statement, _CONTROL):
                group.append(statement)
                continue
            out += self._group(group, extra)
            group, extra = [], slots.NOTHING
            if statement is not None:
                out += getattr(self, f"_count_{type(statement).__name__}")(statement)
        return out

    def _group(self, group: list[ast.stmt], extra: Slots) -> list[ast.stmt]:
        if group and isinstance(group[-1], _JUMPS):
            jump = [_bare(group[-1]) if self.is_slice else group[-1]]
        else:
            jump = []
        price = self.pricer.of_statements(group)
        price.slots += extra
        statements = [s for s in (group[:-1] if jump else group) if self.keep(s)]
        return [*statements, *self._counts(price), *jump]

    def _counts(self, price: Price) -> list[ast.stmt]:
        """The counts that a price consists of; helper calls of constant cost are added in."""
        total, dynamic = price.slots, []
        for call in price.calls:
            target = self.model._target(self.function, call)
            static = self.model.static_slots(target)
            if static is not None:
                total += static
            elif self.is_slice:
                dynamic.append(self._helper_count(target, call))
        is_supervisor = self.model.is_supervisor
        terms = tuple((expr, s.cycles(is_supervisor)) for expr, s in price.terms)
        n_slots = total.cycles(is_supervisor)
        counts = [CycleCount(n_slots, terms)] if n_slots or terms else []
        return [*counts, *dynamic]

    def _helper_count(self, target: FunctionSource, call: ast.Call) -> CountHelper:
        wanted = self.model.sliced(target).parameters
        names = [a.arg for a in self.model.trees[id(target)].args.args]
        arguments = dict(zip(names, call.args, strict=False))
        return CountHelper(target, [arguments[n] for n in wanted])

    def _count_If(self, node: ast.If) -> list[ast.stmt]:
        body, orelse = self.block(node.body), self.block(node.orelse)
        head = self._counts(self.pricer.of_test(node.test))
        if self.is_slice and not body and not orelse:
            return head
        copy = ast.If(node.test, body or [ast.Pass()], orelse)
        return [*head, ast.copy_location(copy, node)]

    def _count_While(self, node: ast.While) -> list[ast.stmt]:
        head = self._counts(self.pricer.of_test(node.test))
        body = [*head, *self.block(node.body)]
        return [*head, ast.copy_location(ast.While(node.test, body, []), node)]

    def _count_For(self, node: ast.For) -> list[ast.stmt]:
        price, items = self.pricer.of_loop(node)
        is_plain = not any(isinstance(n, _CONTROL) for s in node.body for n in walk(s))
        if not (is_plain and self._has_no_dynamic_calls(node) and not self.model.is_supervisor):
            items += slots.LOOP_ITERATION
        body = self.block(node.body, items)
        head = self._counts(price)
        length = _length_source(node.iter, self.function)
        if self.is_slice and length is not None and _is_constant(body):
            n_slots = sum(c.n_slots for c in body if isinstance(c, CycleCount))
            return [*head, CycleCount(0, ((length, n_slots),))] if n_slots else head
        copy = ast.For(node.target, node.iter, body or [ast.Pass()], [])
        return [*head, ast.copy_location(copy, node)]

    def _has_no_dynamic_calls(self, node: ast.For) -> bool:
        price = self.pricer.of_statements(node.body)
        targets = (self.model._target(self.function, c) for c in price.calls)
        return all(self.model.static_slots(t) is not None for t in targets)


def _bare(jump: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Return(None), jump) if isinstance(jump, ast.Return) else jump


def _is_constant(body: list[ast.stmt]) -> bool:
    return all(isinstance(s, CycleCount) and not s.terms for s in body)


def _length_source(iterated: ast.expr, function: FunctionSource) -> ast.expr | None:
    """The expression whose length is a loop's trip count, where that is simple."""
    if isinstance(iterated, ast.Name | ast.Attribute):
        return iterated
    if not isinstance(iterated, ast.Call):
        return None
    bound = function.bindings.get(dotted_name(iterated.func) or "")
    if isinstance(bound, Known) and bound.name in ("enumerate", "reversed"):
        return _length_source(iterated.args[0], function)
    return iterated if isinstance(bound, Known) and bound.name == "range" else None


def _local_arrays(tree: ast.FunctionDef, function: FunctionSource) -> set[str]:
    """Names of arrays that the function allocates, as in `buffer = np.zeros(…)`."""
    return {
        target.id
        for node in walk(tree)
        if isinstance(node, ast.Assign) and _is_allocation(node.value, function)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_allocation(node: ast.expr, function: FunctionSource) -> bool:
    called = dotted_name(node.func) if isinstance(node, ast.Call) else None
    bound = function.bindings.get(called or "")
    return isinstance(bound, Known) and bound.name in ALLOCATIONS


def _is_view(value: ast.expr) -> bool:
    """A vector by name, a part of one, or one of two."""
    if isinstance(value, ast.IfExp):
        return _is_view(value.body) and _is_view(value.orelse)
    return isinstance(value, ast.Tuple) or _root(value) is not None


def _root(node: ast.expr) -> str | None:
    """The name that a chain of attributes and subscripts starts from."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _targets(statement: ast.stmt, made_here: set[str]) -> set[str]:
    """Names that a simple statement sets, and local arrays whose elements it sets.

    Elements of other vectors are data: no count needs them, and the COST kernel has no data.
    """
    if isinstance(statement, ast.Assign):
        places = list(statement.targets)
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        places = [statement.target]
    else:
        return set()
    names = set()
    for place in places:
        for part in place.elts if isinstance(place, ast.Tuple) else [place]:
            name = _root(part)
            if name is not None and (isinstance(part, ast.Name) or name in made_here):
                names.add(name)
    return names


def _used_names(body: list[ast.stmt]) -> set[str]:
    used: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            used.add(node.id)
        parts: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, CycleCount):
            parts += [expression for expression, _ in node.terms]
        if isinstance(node, CountHelper):
            parts += node.arguments
        for part in parts:
            visit(part)

    for statement in body:
        visit(statement)
    return used


def _static_total(statements: list[ast.stmt], pricer: Pricer) -> Slots:
    """Slots of every operation once: branches and loop bodies included."""
    total = Slots()
    for statement in statements:
        if isinstance(statement, ast.If | ast.While):
            price = pricer.of_test(statement.test)
        elif isinstance(statement, ast.For):
            price, items = pricer.of_loop(statement)
            price.slots += items + slots.LOOP_ITERATION
        else:
            price = pricer.of_statements([statement])
        total += price.slots
        for _, each in price.terms:
            total += each + slots.LOOP_SETUP
        total += _static_total(getattr(statement, "body", []), pricer)
        total += _static_total(getattr(statement, "orelse", []), pricer)
    return total
