"""A codelet → the Python text of its kernel, for Numba; docs/architecture.md has the ABI.

A codelet has three kernels. RUN computes; COUNTED computes and counts; COST only counts, from sizes
and state, and never touches the arena. The first two also exist with rounding modes: there every
operation takes the worker's record, which says how halves round.

A kernel is a loop over rows of the vertex table (and workers) around the codelet's statements.
A MultiVertex that computes `self.y[i] = self.x[i] * self.factor` becomes, with names shortened:

    def kernel(arena, columns, begin, end):
        x_offset = COLUMN_LONGLONG(columns, 0); …                              # used columns only
        for v in range(begin, end):
            for worker_id in range(5, -1, -1):                                 # worker 0 last
                x = input_vector(FLOAT(arena), load(x_offset, v), …)           # `field_setup`
                y = vector(FLOAT(arena), load(y_offset, v), load(y_length, v))
                for i in range(worker_id, len(x), 6):                          # `Writer`
                    y[i] = mul(x[i], load(factor, v))                          # lowered expressions

A codelet that returns from the middle has its statements in a function `row` that the loop calls.
The RUN kernel without rounding modes is made of the codelet's `compute_on_host` where it has one.
COUNTED and COST differ in the statements (cost/counting.py) and in a counter that they fill.
Generated names start with `_k_`, which codelets may not use.
"""

import ast
import re
from enum import Enum

from tremula.codelets.columns import columns_of
from tremula.codelets.cost import slots
from tremula.codelets.cost.counting import CostModel
from tremula.codelets.kernel.expressions import ExpressionLowering, Names
from tremula.codelets.kernel.hoisting import hoisted
from tremula.codelets.kernel.statements import Writer, cost_name, field_setup
from tremula.codelets.python import random
from tremula.codelets.python.folding import folded_tree
from tremula.codelets.python.function_source import FunctionSource, Known, native_module
from tremula.codelets.python.kinds import INT, KindTable
from tremula.codelets.python.nodes import walk
from tremula.codelets.python.subset import helpers_of
from tremula.codelets.spec import FieldSpec, VertexBase

OPTIONS = 'nogil=True, error_model="numpy", boundscheck=False'
# Where nothing is allocated, no references are counted: less to compile.
WITHOUT_REFERENCES = f"{OPTIONS}, _nrt=False"
_ALLOCATES = re.compile(r"\bnp\.(zeros|ones|empty|full)")
_ARENA, _COLUMNS = "CPointer(uint8)", "CPointer(int64)"


class Variant(Enum):
    RUN = "run"
    COUNTED = "counted"
    COST = "cost"


class CodeletKernelText:
    """Assembles the text of one kernel."""

    def __init__(
        self, name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase,
        variant: Variant, has_modes: bool = False, model: CostModel | None = None,
    ) -> None:  # fmt: skip
        self.name, self.compute, self.fields = name, compute, fields
        self.base, self.variant = base, variant
        self.names = Names()
        if variant is not Variant.COST and (has_modes or draws_random(compute)):
            self.names.worker = ["_k_w"]
        self.names.rounding = self.names.worker if has_modes else []
        self.names.has_floats_and_integers = any(f.type.is_floating for f in fields) and any(
            f.is_written and f.type.dtype.kind in "iu" for f in fields
        )
        self.model = model or CostModel(compute, fields, base)
        called = self.model.trees  # without those that only an untaken branch calls
        self.helpers = [h for h in helpers_of(compute) if id(h) in called]
        self.worker = [a.arg for a in compute.tree().args.args[1:]]
        for i, helper in enumerate(self.helpers):
            self.names.helpers[id(helper)] = f"_k_f{i}_{helper.name}"
            is_static = self.model.static_slots(helper) is not None
            if variant is Variant.COUNTED and not is_static:
                self.names.counting_helpers.add(id(helper))

    def text(self) -> str:
        functions = [line for h in self.helpers for line in self._helper(h)]
        row, calls, used = self._row()
        kernel = self._kernel(used, calls)
        imports = ["import numpy as np", ""]
        imports += ["from tremula.codelets.native.short_pipeline import inner"]
        imports += ["from tremula.codelets.native.stored_code import callback"]
        imports += [
            f"from tremula.codelets.native import {m} as native_{m}"
            for m in sorted(self.names.modules)
        ]
        definitions = [f"{name} = {value}" for name, value in self.names.definitions.items()]
        # A comment, and in ASCII: a name read from a file cannot end it and become code.
        modes = " with rounding modes" if self.names.rounding else ""
        what = f"# The {self.variant.value} kernel{modes} of codelet {self.name!a}, generated."
        parts = [what, "", *imports, "", *definitions, "", *functions, *row, *kernel]
        text = "\n".join(parts) + "\n"
        return text if _ALLOCATES.search(text) else text.replace(OPTIONS, WITHOUT_REFERENCES)

    # -- helper functions

    def _helper(self, helper: FunctionSource) -> list[str]:
        module = native_module(helper)
        if self.variant is Variant.RUN and not self.names.worker and module is not None:
            native = self.names.of_module(module, helper.name)
            return [f"{self.names.helpers[id(helper)]} = {native}", "", ""]
        tree = folded_tree(helper)
        parameters, worker = [a.arg for a in tree.args.args], self.names.worker
        name = self.names.helpers[id(helper)]
        if id(helper) in self.names.counting_helpers:
            body = self.model.instrumented(helper)
            arguments = [*parameters, "_k_count", *worker]
            lines = self._function(name, arguments, helper, body, counts=True)
        else:
            lines = self._function(name, [*parameters, *worker], helper, tree.body, counts=False)
        if self.variant is Variant.COST and self.model.static_slots(helper) is None:
            sliced = self.model.sliced(helper)
            writer = Writer(self._lowering(helper), "_k_n", needed=sliced.needed)
            writer.write(sliced.body, 1)
            head = f"def {cost_name(name)}({', '.join(sliced.parameters)}):"
            lines += [f"@inner({OPTIONS})", head, "    _k_n = 0", *writer.lines]
            lines += ["    return _k_n", "", ""]
        return lines

    def _function(
        self, name: str, parameters: list[str], helper: FunctionSource, body: list[ast.stmt],
        counts: bool,
    ) -> list[str]:  # fmt: skip
        writer = Writer(self._lowering(helper), "None")
        writer.before_return = self._add_count() if counts else ""
        writer.write(body, 1)
        lines = [self._helper_decorator(), f"def {name}({', '.join(parameters)}):"]
        lines += ["    _k_n = 0"] if counts else []
        lines += writer.lines
        if counts and not isinstance(body[-1], ast.Return):
            lines += [f"    {self._add_count()}"]
        return [*lines, "", ""]

    def _helper_decorator(self) -> str:
        """Helpers of a run are inlined: a call counts references to its arrays at every element."""
        inlined = ", forceinline=True" if self.variant is Variant.RUN else ""
        return f"@inner({OPTIONS}{inlined})"

    def _lowering(self, function: FunctionSource) -> ExpressionLowering:
        return ExpressionLowering(function, {}, self.names, None)

    def _add_count(self) -> str:
        load, store = self.names.memory("load"), self.names.memory("store")
        return f"{store}(_k_count, 0, {load}(_k_count, 0) + _k_n)"

    # -- one row of the table

    def _row(self) -> tuple[list[str], list[str], list[FieldSpec]]:
        """A function for one row, if there must be one; the lines that run a row; its fields."""
        tree = folded_tree(self.compute)
        by_name = {f.name: f for f in self.fields}
        kinds = KindTable(self.compute, by_name, dict.fromkeys(self.worker, INT), tree)
        lowering = ExpressionLowering(self.compute, by_name, self.names, kinds)
        counts = self.variant is not Variant.RUN
        body = {
            Variant.RUN: lambda: hoisted(tree, by_name),
            Variant.COUNTED: lambda: self.model.instrumented(self.compute),
            Variant.COST: lambda: self.model.sliced(self.compute).body,
        }[self.variant]()
        is_open = can_stand_in_loop(body)
        writer = Writer(lowering, "1", "(1 if {} else 0)")
        writer.return_line = "_k_all &= {}" if is_open else "return {}"
        if self.variant is Variant.COST:
            writer.needed = self.model.sliced(self.compute).needed
        writer.before_return = self._add_count() if counts else ""
        writer.write(body, 0)
        used = [f for f in self.fields if f.name in lowering.used_fields]
        setup = [line for f in used for line in self._setup(f, lowering)]
        pointers = sorted({f.type.name for f in used if f.is_edge} | _metadata_type(used))
        setup = [f"_k_p_{t} = {self.names.table('POINTER', t)}(_k_arena)" for t in pointers] + setup
        start = ["_k_n = 0"] if counts else []
        lines = [*setup, *start, *writer.lines]
        if counts and not (body and isinstance(body[-1], ast.Return)):
            lines += [self._add_count()]
        if is_open:
            return [], lines, used
        arguments = ", ".join(self._given(used))
        head = [f'@inner({OPTIONS}, inline="always")', f"def row({arguments}):"]
        row = [*head, *(f"    {line}" for line in lines), "    return 1", "", ""]
        return row, [f"_k_all &= row({arguments})"], used

    def _setup(self, spec: FieldSpec, lowering: ExpressionLowering) -> list[str]:
        return field_setup(spec, lowering, self.variant is not Variant.COST)

    def _given(self, used: list[FieldSpec]) -> list[str]:
        columns = [
            f"_k_c_{c.field.name}_{c.role}" for c in columns_of(self.fields) if c.field in used
        ]
        counter = [] if self.variant is Variant.RUN else ["_k_count"]
        return ["_k_arena", *columns, "_k_v", *self.worker, *counter, *self.names.worker]

    # -- the kernel

    def _kernel(self, used: list[FieldSpec], calls: list[str]) -> list[str]:
        counts = self.variant is not Variant.RUN
        types = [_ARENA, _COLUMNS, "int64", "int64", *([_COLUMNS] if counts else [])]
        arguments = "_k_arena, _k_columns, _k_begin, _k_end" + (", _k_cycles" if counts else "")
        lines = [
            f'@callback("int64({", ".join(types)})", {OPTIONS})',
            f"def kernel({arguments}):",
        ]
        for column in columns_of(self.fields):
            if column.field in used:
                key = column.field.type.name if column.role == "value" else "LONGLONG"
                make = self.names.table("COLUMN", key)
                name = f"_k_c_{column.field.name}_{column.role}"
                lines.append(f"    {name} = {make}(_k_columns, {column.index})")
        lines += self._worker_columns()
        lines += ["    _k_all = 1", "    for _k_v in range(_k_begin, _k_end):"]
        calls = [*self._worker_record(), *calls]
        body = self._counted_call(calls) if counts else self._plain_call(calls)
        return [*lines, *(f"        {line}" for line in body), "    return _k_all"]

    def _worker_columns(self) -> list[str]:
        if not self.names.worker:
            return []
        column, pointer = self.names.table("COLUMN", "LONGLONG"), "UNSIGNED_LONGLONG"
        return [
            f"    _k_c_worker_state = {column}(_k_columns, {len(columns_of(self.fields))})",
            f"    _k_states = {self.names.table('POINTER', pointer)}(_k_arena)",
        ]

    def _worker_record(self) -> list[str]:
        """The line that finds the record of the worker that runs a row."""
        if not self.names.worker:
            return []
        load, shifted = self.names.memory("load"), self.names.memory("shifted")
        at = f"{load}(_k_c_worker_state, _k_v)"
        at += f" + {random.WORKER_WORDS} * {self.worker[0]}" if self.worker else ""
        return [f"_k_w = {shifted}(_k_states, {at})"]

    def _plain_call(self, calls: list[str]) -> list[str]:
        if not self.worker:
            return calls
        head = f"for {self.worker[0]} in range({self.compute.n_workers - 1}, -1, -1):"
        return [head, *(f"    {call}" for call in calls)]

    def _counted_call(self, calls: list[str]) -> list[str]:
        load, store = self.names.memory("load"), self.names.memory("store")
        overhead = slots.VERTEX_OVERHEAD_SLOTS + sum(
            slots.LAYOUT_SLOTS[f.layout] for f in self.fields if f.is_edge
        )
        count = f"_k_count = {self.names.memory('shifted')}(_k_cycles, _k_v)"
        if not self.worker:
            return [count, f"{store}(_k_count, 0, {overhead})", *calls]
        return [
            count,
            "_k_most = 0",
            f"for {self.worker[0]} in range({self.compute.n_workers - 1}, -1, -1):",
            f"    {store}(_k_count, 0, {overhead})",
            *(f"    {call}" for call in calls),
            f"    _k_most = max(_k_most, {load}(_k_count, 0))",
            f"{store}(_k_count, 0, {self.compute.n_workers} * _k_most + {slots.LAUNCH_CYCLES})",
        ]


def host_kernel_text(
    name: str, host_compute: FunctionSource, fields: tuple[FieldSpec, ...]
) -> CodeletKernelText:
    """The RUN kernel of a codelet with a `compute_on_host`: once per row, for all workers."""
    return CodeletKernelText(name, host_compute, fields, VertexBase.VERTEX, Variant.RUN)


def can_stand_in_loop(body: list[ast.stmt]) -> bool:
    """Whether statements return at their end only, and hide no name that the loop uses.

    Numba takes a quarter longer to compile a function and inline it.
    """
    *others, last = body or [ast.Pass()]
    inside = others if isinstance(last, ast.Return) else [*others, last]
    nodes = [n for statement in inside for n in walk(statement)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return not any(isinstance(n, ast.Return) for n in nodes) and not stored & {"max", "range"}


def draws_random(compute: FunctionSource) -> bool:
    """Whether it, or a function it calls, uses python/random.py."""
    bindings = [b for f in [compute, *helpers_of(compute)] for b in f.bindings.values()]
    return any(isinstance(b, Known) and b.where == "random" for b in bindings)


def _metadata_type(fields: list[FieldSpec]) -> set[str]:
    needs = any(f.is_edge and f.type.requires_metadata for f in fields)
    return {"UNSIGNED_CHAR"} if needs else set()
