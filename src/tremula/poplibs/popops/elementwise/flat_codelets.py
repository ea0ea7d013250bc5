"""Codelets that do the same to every element, generated from a few lines of source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tremula.base.types import ALL_TYPES, Type
from tremula.codelets.flops import flops_per_element
from tremula.poplibs.families import class_from_text
from tremula.poplibs.popops.elementwise.costs import LoopCost, flat_cycles, flat_multi_cycles
from tremula.poplibs.popops.elementwise.fused import SHARE_OF_WORKER, converter

NAMES: Mapping[str, object] = {converter(t): t for t in ALL_TYPES} | {
    "flat_cycles": flat_cycles, "flat_multi_cycles": flat_multi_cycles, "LoopCost": LoopCost,
    "flops_per_element": flops_per_element,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatCodelet:
    """One codelet. Vectors and scalars are (field, direction, type), state is (field, type).

    `lines` are run for every i; they see vectors, scalars and state as locals of their field's
    name, vectors indexed as in `x[i]`.
    """

    name: str
    provenance: str
    vectors: Sequence[tuple[str, str, Type]]
    scalars: Sequence[tuple[str, str, Type]] = ()
    state: Sequence[tuple[str, Type]] = ()
    before: Sequence[str] = ()  # run once, with the scalars and state known
    lines: Sequence[str]
    sized_by: str  # the vector whose length counts
    cost: LoopCost
    flops: int  # of one element
    helpers: Mapping[str, object] | None = None


def make_flat(form: FlatCodelet, is_multi: bool) -> type:
    """The class: a MultiVertex over one region, or a Vertex over a list of regions."""
    fields = [
        f"{name}: {_vector(direction, element, is_multi)}"
        for name, direction, element in form.vectors
    ]
    fields += [f"{name}: {direction}[{converter(t)}]" for name, direction, t in form.scalars]
    fields += [f"{name}: {converter(t)}" for name, t in form.state]
    body = [f"{name} = self.{name}" for name, _, _ in form.scalars]
    body += [f"{name} = self.{name}" for name, _ in form.state]
    body += [*form.before, *_loops(form, is_multi)]
    signature = "compute(self, worker_id)" if is_multi else "compute(self)"
    text = "\n".join([
        f"class Flat({'MultiVertex' if is_multi else 'Vertex'}):",
        f"    name = {_codelet_name(form.name, is_multi)!r}",
        f"    provenance = {form.provenance!r}",
        *(f"    {field}" for field in fields),
        "",
        f"    def {signature}:",
        *(f"        {line}" for line in body),
        "",
        "    @staticmethod",
        "    def cycles(v, chip):",
        f"        return {_cycles(form, is_multi)}",
        "",
        f"    flops = flops_per_element({form.sized_by!r}, {form.flops})",
        "",
    ])  # fmt: skip
    return class_from_text(text, "Flat", {**NAMES, **(form.helpers or {})})


def _vector(direction: str, element: Type, is_multi: bool) -> str:
    vector = f"{direction}[Vector[{converter(element)}]]"
    return vector if is_multi else f"Vector[{vector}]"


def _loops(form: FlatCodelet, is_multi: bool) -> list[str]:
    at = "" if is_multi else "[region]"
    fetch = [f"{name} = self.{name}{at}" for name, _, _ in form.vectors]
    share = SHARE_OF_WORKER if is_multi else "n"
    inside = [
        *fetch,
        f"n = len({form.sized_by})",
        f"for i in range({share}):",
        *(f"    {line}" for line in form.lines),
    ]
    if is_multi:
        return inside
    return [f"for region in range(len(self.{form.sized_by})):", *(f"    {x}" for x in inside)]


def _codelet_name(name: str, is_multi: bool) -> str:
    base, _, parameters = name.partition("<")
    base = base if "::" in base else f"popops::{base}"
    return f"{base}{'1D' if is_multi else '2D'}<{parameters}"


def _cycles(form: FlatCodelet, is_multi: bool) -> str:
    size = f"v.sizes[{form.sized_by!r}]"
    if is_multi:
        return f"flat_multi_cycles({size}, {form.cost!r}, chip)"
    return f"flat_cycles({size}, v.n_subs[{form.sized_by!r}], {form.cost!r}, chip)"
