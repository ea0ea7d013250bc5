"""The pooling codelet: rows of outputs, each joined with rows of inputs at a few taps.

Workers share the positions (row × column) of a box. A row's results are gathered in float32.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tremula.base.types import ALL_TYPES, Type
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import class_from_text, family
from tremula.poplibs.popnn.pooling.plan import pool_cycles
from tremula.poplibs.popops.elementwise.fused import converter


class PoolStep(Enum):
    """What a vertex does where an output meets a tap."""

    SUM = "SumPooling"  # adds, weighted: sums, averages, and the gradients of both
    MAX = "MaxPooling"
    MAX_GRADIENT = "MaxPoolingGrad"  # adds where the input is its window's maximum
    COUNT_MAX = "MaxPoolingGradientScale"  # counts the inputs that are their window's maximum
    PLACE_MAX = "MaxPoolingPlace"  # finds the first input that is its window's maximum
    PLACE_GRADIENT = "MaxPoolingPlaceGrad"  # adds at the places found

    @property
    def dst_row_fields(self) -> tuple[str, ...]:
        """Fields beside dst and src that have a vector for each row of dst."""
        return _FORMS[self].dst_rows

    @property
    def places_of(self) -> str:
        """The rows whose places in the field a vertex needs: those of "src", of "dst", or none."""
        return _FORMS[self].places_of


@dataclass(frozen=True, slots=True)
class _PoolForm:
    """Source of a step. `rows` are further fields, one vector per dst or src row."""

    start: str
    line: str
    flops: int  # of one channel, where an output meets a tap
    dst_rows: tuple[str, ...] = ()
    src_rows: tuple[str, ...] = ()
    before: str = ""
    is_gradient: bool = False
    places_of: str = ""  # "dst" or "src": rows whose place in the field the vertex knows
    types: tuple[tuple[str, str], ...] = ()  # of fields that have another than the activations

    def type_of(self, field: str, element: Type) -> str:
        return dict(self.types).get(field, converter(element))


_FORMS = {
    PoolStep.SUM: _PoolForm(
        "as_float(0)", "totals[d + c] += weight * as_float(source[s + c])", flops=2,
        before="weight = row_share * shares[n_share_rows + (s0 + j * src_stride if by_src else "
        "d0 + j * dst_stride)]",
    ),
    PoolStep.MAX: _PoolForm(
        "as_float(-np.inf)", "totals[d + c] = max(totals[d + c], as_float(source[s + c]))",
        flops=1,
    ),
    PoolStep.MAX_GRADIENT: _PoolForm(
        "as_float(0)",
        "totals[d + c] += as_float(source[s + c]) if acts[d + c] == pooled[s + c] else as_float(0)",
        dst_rows=("acts",), src_rows=("pooled",), is_gradient=True, flops=2,
    ),
    PoolStep.COUNT_MAX: _PoolForm(
        "as_float(0)",
        "totals[d + c] += as_float(1) if pooled[d + c] == source[s + c] else as_float(0)",
        dst_rows=("pooled",), flops=2,
    ),
    PoolStep.PLACE_MAX: _PoolForm(
        "as_float(-1)",
        "totals[d + c] = as_float(place) if totals[d + c] < 0 and pooled[d + c] == source[s + c] "
        "else totals[d + c]",
        dst_rows=("pooled",), before="place = places[at] + s0 + j * src_stride", places_of="src",
        types=(("dst", "as_int"),), flops=1,
    ),
    PoolStep.PLACE_GRADIENT: _PoolForm(
        "as_float(0)",
        "totals[d + c] += as_float(source[s + c]) if chosen[s + c] == place else as_float(0)",
        src_rows=("chosen",), before="place = places[row] + d0 + j * dst_stride",
        places_of="dst", types=(("chosen", "as_int"),), is_gradient=True, flops=1,
    ),
}  # fmt: skip


@family
def pool_codelet(step: PoolStep, element: Type, index: Type) -> type:
    """The codelet of a step; `index` is the type of its tables."""
    names: dict[str, object] = {converter(t): t for t in ALL_TYPES}
    names |= {"np": np, "cost": _cost(step), "flops_of": _flops(step)}
    return class_from_text(_text(step, element, index), "Pooling", names)


def _cost(step: PoolStep) -> object:
    is_gradient = _FORMS[step].is_gradient

    def cost(v: CostView, chip: Chip, element: Type) -> np.ndarray:
        n_channels = np.maximum(v.state["n_channels"].astype(np.int64), 1)
        n_rows = v.n_subs["dst"]
        n_cols = v.sizes["dst"] // np.maximum(n_rows * n_channels, 1)
        return pool_cycles(
            n_rows, n_cols, -(-n_channels // chip.vector_width(element)),
            v.sizes["joined"] - n_rows - 1, v.sizes["taps"] // 3,
            v.state["dst_stride"].astype(np.int64), chip.n_workers,
            is_gradient=is_gradient,
        )  # fmt: skip

    return cost


def _flops(step: PoolStep) -> object:
    each = _FORMS[step].flops

    def flops(v: CostView) -> np.ndarray:
        """Counts all taps at all outputs: which of them meet padding depends on the tables."""
        n_rows, n_channels = v.n_subs["dst"], v.state["n_channels"].astype(np.int64)
        n_cols = v.sizes["dst"] // np.maximum(n_rows * n_channels, 1)
        n_met = -(-n_cols // v.state["dst_stride"].astype(np.int64)) * n_channels
        return each * (v.sizes["joined"] - n_rows - 1) * (v.sizes["taps"] // 3) * n_met

    return flops


def _text(step: PoolStep, element: Type, index: Type) -> str:
    form = _FORMS[step]
    is_sum = step is PoolStep.SUM
    fields = [
        f"dst: Vector[Output[Vector[{form.type_of('dst', element)}]]]",
        *(
            f"{name}: Vector[Input[Vector[{form.type_of(name, element)}]]]"
            for name in ("src", *form.dst_rows, *form.src_rows)
        ),
        *(f"{name}: Input[Vector[{converter(index)}]]" for name in ("joined", "taps")),
        *(["shares: Input[Vector[as_float]]", "by_src: as_bool"] if is_sum else []),
        *(["places: Input[Vector[as_int]]"] if form.places_of else []),
        *(f"{name}: as_unsigned_int" for name in ("n_channels", "dst_stride", "src_stride")),
    ]
    return "\n".join([
        "class Pooling(MultiVertex):",
        f"    name = 'popnn::{step.value}<{element},{index}>'",
        "    provenance = 'published'",
        *(f"    {field}" for field in fields),
        "",
        "    def compute(self, worker_id):",
        *(f"        {line}" for line in _body(form, element, is_sum)),
        "",
        "    @staticmethod",
        "    def cycles(v, chip):",
        f"        return cost(v, chip, {converter(element)})",
        "",
        "    @staticmethod",
        "    def flops(v, chip):",
        "        return flops_of(v)",
        "",
    ])  # fmt: skip


def _body(form: _PoolForm, element: Type, is_sum: bool) -> list[str]:
    """Rows, the joins of a row, taps, places, channels."""
    share_rows = [
        "shares = self.shares",
        "by_src = self.by_src",
        "n_share_rows = len(self.src) if by_src else len(self.dst)",
    ]
    return [
        "joined = self.joined",
        "taps = self.taps",
        "n_channels = as_longlong(self.n_channels)",
        "dst_stride = as_longlong(self.dst_stride)",
        "src_stride = as_longlong(self.src_stride)",
        "n_rows = len(self.dst)",
        "n_cols = len(self.dst[0]) // n_channels",
        *(share_rows if is_sum else []),
        *(["places = self.places"] if form.places_of else []),
        "first = n_rows * n_cols * worker_id // self.n_workers",
        "last = n_rows * n_cols * (worker_id + 1) // self.n_workers",
        "if last <= first:",
        "    return",
        "totals = np.empty(n_cols * n_channels, dtype=as_float)",
        "for row in range(first // n_cols, (last - 1) // n_cols + 1):",
        "    low = max(first - row * n_cols, 0)",
        "    high = min(last - row * n_cols, n_cols)",
        "    for k in range(low * n_channels, high * n_channels):",
        f"        totals[k] = {form.start}",
        *(f"    {name} = self.{name}[row]" for name in form.dst_rows),
        "    for join in range(as_longlong(joined[row]), as_longlong(joined[row + 1])):",
        "        at = as_longlong(joined[n_rows + 1 + join])",
        "        source = self.src[at]",
        *(f"        {name} = self.{name}[at]" for name in form.src_rows),
        *(["        row_share = shares[at] if by_src else shares[row]"] if is_sum else []),
        "        for tap in range(len(taps) // 3):",
        "            d0 = as_longlong(taps[3 * tap])",
        "            s0 = as_longlong(taps[3 * tap + 1])",
        "            begin = max(0, -((d0 - low) // dst_stride))",
        "            end = min(as_longlong(taps[3 * tap + 2]), -((d0 - high) // dst_stride))",
        "            for j in range(begin, end):",
        "                d = (d0 + j * dst_stride) * n_channels",
        "                s = (s0 + j * src_stride) * n_channels",
        *([f"                {form.before}"] if form.before else []),
        "                for c in range(n_channels):",
        f"                    {form.line}",
        "    out = self.dst[row]",
        "    for k in range(low * n_channels, high * n_channels):",
        f"        out[k] = {form.type_of('dst', element)}(totals[k])",
    ]
