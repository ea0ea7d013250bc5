"""Generated element-wise codelets: one expression, its loops, its operands' forms, its cost.

Operands come in the four forms of vertex_layout.py: vector, scalar, inner and outer vector.
"""

import math
from dataclasses import dataclass

import numpy as np

from tremula.base.types import ALL_TYPES
from tremula.codelets.flops import flops_per_element
from tremula.poplibs.families import class_from_text, family
from tremula.poplibs.popops.elementwise import costs as element_costs
from tremula.poplibs.popops.elementwise.costs import LoopCost, fused_cost, single_cost
from tremula.poplibs.popops.elementwise.fused import SHARE_OF_WORKER, FusedBody, converter
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.popops.vertex_layout import Form


@dataclass(frozen=True, slots=True)
class CodeletPlan:
    """Everything that makes one generated codelet differ from another."""

    body: FusedBody
    forms: tuple[Form, ...]  # of the placeholders in body.used
    is_in_place: bool
    is_multi: bool  # one region and all workers, else several regions and one worker

    @property
    def rows_by(self) -> tuple[int, Form] | None:
        """The operand that sets how many rows there are: (placeholder, form)."""
        for form in (Form.INNER, Form.OUTER):
            if form in self.forms:
                return self.body.used[self.forms.index(form)], form
        return None

    @property
    def out(self) -> str:
        return "in1" if self.is_in_place else "out"

    def codelet_name(self) -> str:
        single = self.body.single_op
        kind = {
            Form.VECTOR: "" if single is None else "Op", Form.SCALAR: "BroadcastScalar",
            Form.INNER: "BroadcastVectorInner", Form.OUTER: "BroadcastVectorOuter",
        }[self._main_form()]  # fmt: skip
        place = "InPlace" if self.is_in_place else ""
        types = ",".join(str(t) for t in self.body.types)
        forms = "".join(f.value for f in self.forms)
        space = "popops::" if single else "popops::map::"
        dims = "1D" if self.is_multi else "2D"
        return f"{space}{kind}{dims}{place}<{self.body.text},{types},{forms}>"

    def _main_form(self) -> Form:
        if self.rows_by is not None:
            return self.rows_by[1]
        has_scalar = Form.SCALAR in self.forms or self.body.has_constant
        return Form.SCALAR if has_scalar else Form.VECTOR

    def cost(self) -> LoopCost:
        single = self.body.single_op
        if single is None:
            n_vectors = sum(f is Form.VECTOR for f in self.forms)
            types = (*self.body.types, self.body.result)
            return fused_cost(self.body.ops, types, n_vectors, self.is_multi)
        form = {"V": "", "S": "scalar", "I": "inner", "O": "outer"}[self._main_form().value]
        return single_cost(*single, form, self.is_in_place, self.is_multi)


@family
def element_codelet(plan: CodeletPlan) -> type:
    """The codelet of a plan."""
    names: dict[str, object] = {converter(t): t for t in ALL_TYPES}
    names |= {"math": math, "np": np, "inf": math.inf, "nan": math.nan}
    names |= {f.__name__: f for f in plan.body.functions}
    cost_names = {
        n: getattr(element_costs, n)
        for n in ("flat_multi_cycles", "flat_cycles", "row_multi_cycles", "row_cycles", "n_rows_of",
                  "LoopCost")
    }  # fmt: skip
    cost_names["flops_per_element"] = flops_per_element
    return class_from_text(codelet_text(plan), "ElementWise", names | cost_names)


def codelet_text(plan: CodeletPlan) -> str:
    """The source of a plan's codelet."""
    single = plan.body.single_op
    provenance = ELEMENT_OPS[single[0]].provenance if single else "derived"
    loop = _row_loop(plan) if plan.rows_by else _flat_loop(plan)
    head = "def compute(self, worker_id):" if plan.is_multi else "def compute(self):"
    lines = [
        f"class ElementWise({'MultiVertex' if plan.is_multi else 'Vertex'}):",
        f"    name = {plan.codelet_name()!r}",
        f"    provenance = {provenance!r}",
        *(f"    {field}" for field in _fields(plan)),
        "",
        f"    {head}",
        *(f"        {line}" for line in (loop if plan.is_multi else _over_regions(plan, loop))),
        "",
        "    @staticmethod",
        "    def cycles(v, chip):",
        f"        return {_cycles_text(plan)}",
        "",
        f"    flops = flops_per_element({plan.out!r}, {plan.body.n_flops})",
    ]
    return "\n".join(lines) + "\n"


def _fields(plan: CodeletPlan) -> list[str]:
    fields = []
    for index, form in zip(plan.body.used, plan.forms, strict=True):
        element = converter(plan.body.types[index - 1])
        is_target = plan.is_in_place and index == 1
        direction = "InOut" if is_target else "Input"
        fields.append(f"in{index}: {_field_type(direction, element, form, plan.is_multi)}")
    if not (plan.is_in_place and 1 in plan.body.used):
        result = converter(plan.body.result)
        fields.append(f"{plan.out}: {_field_type('Output', result, Form.VECTOR, plan.is_multi)}")
    return fields


def _field_type(direction: str, element: str, form: Form, is_multi: bool) -> str:
    if form is Form.SCALAR:
        return f"{direction}[{element}]"
    # PopLibs' element-wise vertices say how long the result is, and where operands as long begin.
    is_operand = direction == "Input" and form is Form.VECTOR
    layout = ', "ONE_PTR"' if is_operand else ""
    vector = f"{direction}[Vector[{element}{layout}]]"
    return vector if is_multi else f"Vector[{vector}]"


def _fetched(plan: CodeletPlan) -> list[str]:
    """Local names for fields: loops over locals vectorise."""
    at = "" if plan.is_multi else "[region]"
    lines = [f"out = self.{plan.out}{at}"]
    for index, form in zip(plan.body.used, plan.forms, strict=True):
        is_target = plan.is_in_place and index == 1
        if form is Form.SCALAR:
            lines.append(f"x{index} = self.in{index}")
        elif not is_target:
            lines.append(f"a{index} = self.in{index}{at}")
    return [*lines, "n = len(out)"]


def _source(plan: CodeletPlan, index: int) -> str:
    return "out" if plan.is_in_place and index == 1 else f"a{index}"


def _loads(plan: CodeletPlan, wanted: Form, position: str) -> list[str]:
    return [
        f"x{index} = {_source(plan, index)}[{position}]"
        for index, form in zip(plan.body.used, plan.forms, strict=True)
        if form is wanted
    ]


def _flat_loop(plan: CodeletPlan) -> list[str]:
    share = SHARE_OF_WORKER if plan.is_multi else "n"
    inside = [*_loads(plan, Form.VECTOR, "i"), *plan.body.lines,
              f"out[i] = {plan.body.result_name}"]  # fmt: skip
    return [*_fetched(plan), f"for i in range({share}):", *(f"    {line}" for line in inside)]


def _row_loop(plan: CodeletPlan) -> list[str]:
    assert plan.rows_by is not None
    index, form = plan.rows_by
    lines = _fetched(plan)
    n_cols = f"len(a{index})" if form is Form.INNER else f"n // len(a{index})"
    lines += [f"n_cols = {n_cols}", "n_rows = n // n_cols"]
    row_range, col_range = "n_rows", "n_cols"
    if plan.is_multi:
        lines += [
            "row_worker = worker_id if n_rows >= n_cols else 0",
            "row_workers = self.n_workers if n_rows >= n_cols else 1",
            "col_worker = worker_id - row_worker",
            "col_workers = self.n_workers + 1 - row_workers",
        ]
        row_range = "n_rows * row_worker // row_workers, n_rows * (row_worker + 1) // row_workers"
        col_range = "n_cols * col_worker // col_workers, n_cols * (col_worker + 1) // col_workers"
    inside = [
        *_loads(plan, Form.VECTOR, "base + col"), *_loads(plan, Form.INNER, "col"),
        *plan.body.lines, f"out[base + col] = {plan.body.result_name}",
    ]  # fmt: skip
    return [
        *lines,
        f"for row in range({row_range}):",
        "    base = row * n_cols",
        *(f"    {line}" for line in _loads(plan, Form.OUTER, "row")),
        f"    for col in range({col_range}):",
        *(f"        {line}" for line in inside),
    ]


def _over_regions(plan: CodeletPlan, loop: list[str]) -> list[str]:
    return [f"for region in range(len(self.{plan.out})):", *(f"    {line}" for line in loop)]


def _cycles_text(plan: CodeletPlan) -> str:
    cost = repr(plan.cost())
    size = f"v.sizes[{plan.out!r}]"
    subs = "" if plan.is_multi else f", v.n_subs[{plan.out!r}]"
    if plan.rows_by is None:
        name = "flat_multi_cycles" if plan.is_multi else "flat_cycles"
        return f"{name}({size}{subs}, {cost}, chip)"
    index, form = plan.rows_by
    is_inner = form is Form.INNER
    rows = f"n_rows_of(v, {plan.out!r}, 'in{index}', {is_inner})"
    name = "row_multi_cycles" if plan.is_multi else "row_cycles"
    return f"{name}({size}, {rows}{subs}, {cost}, {is_inner}, chip)"
