"""Codelets of reductions: what one operation does to an accumulator, and the loops around it.

A vertex has one vector of outputs and a list of partials. Each partial vector has a whole number of
partials per output: either rows of all outputs, one after the other, or, `is_inner`, all partials
of the first output, then those of the second.
"""

import math
from dataclasses import dataclass

import numpy as np

from tremula.base.provenance import fitted
from tremula.base.types import (
    BOOL,
    FLOAT,
    HALF,
    UNSIGNED_LONGLONG,
    Type,
    float32,
)
from tremula.codelets import InOut, Input, Output, Vector
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import class_from_text, family
from tremula.poplibs.popops.reduction.operations import REDUCE_OPS

GC2_SUM_WIDTH = fitted(
    "GC2_SUM_WIDTH", 1, "floats that a reduction of SDK 1.0 adds in a slot, on GC2",
    "Jia et al. table 4.16: 7 µs for 9728 floats on a tile; PopLibs' later vertices add vectors",
    ("jia-reduce*",),
)  # fmt: skip


def accumulator_type(operation: str, type: Type) -> Type:
    """What a vertex computes in, and tiles send: halves are summed as floats."""
    return FLOAT if type is HALF and not REDUCE_OPS[operation].is_exact else type


@dataclass(frozen=True, slots=True)
class ElementCost:
    """Worker slots for `width` elements."""

    slots: int
    width: int


def element_cost(operation: str, type: Type, chip: Chip) -> ElementCost:
    """Floats are taken 64 bits at a time; integers and bools one by one, by load and operation.

    The library measured on GC2 (SDK 1.0) summed one float per slot, as plain C++ does: Jia et al.
    table 4.16, 1.00 cycles per operand with six workers.
    """
    if not type.is_floating:
        return ElementCost(2, 1)
    kind = REDUCE_OPS[operation]
    slots = kind.slots_half if type is HALF else kind.slots
    width = GC2_SUM_WIDTH if chip.arch == "ipu1" else chip.vector_width(type)
    return ElementCost(slots, width)


def worker_cycles(
    operation: str, type: Type, chip: Chip, n_outs: np.ndarray, n_elems: np.ndarray,
    n_parts: np.ndarray, is_inner: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Worker cycles of a vertex: PopLibs' single-output, continuous and strided estimates.

    On GC2 the general vertex: 33, 30 per output region, 10 per partial region.
    """
    cost = element_cost(operation, type, chip)
    n_vectors = -(-n_elems // cost.width)
    if chip.arch == "ipu1":
        return 63 + 10 * n_parts + n_vectors * cost.slots
    n_columns = -(-n_outs // cost.width)
    n_rows = n_elems // np.maximum(n_outs, 1)
    along = 17 + np.where(n_outs > 1, 12 * n_outs, 0) + 10 * (n_parts - 1) + n_vectors * cost.slots
    across = 16 + n_columns * (3 + 3 * n_parts + 5 + n_rows * cost.slots)
    return np.where(is_inner, along, across)


def multi_cycles(
    operation: str, type: Type, chip: Chip, n_outs: np.ndarray, n_elems: np.ndarray,
    n_parts: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Tile cycles of a vertex whose workers share its outputs."""
    n_rows = n_elems // np.maximum(n_outs, 1)
    share = -(-n_outs // chip.n_workers)
    worker = worker_cycles(
        operation, type, chip, share, share * n_rows, n_parts, np.zeros(len(n_outs), bool)
    )
    return 11 + chip.n_workers * worker


def reduce_flops(
    operation: str, type: Type, n_outs: np.ndarray, n_elems: np.ndarray, n_finishing: int
) -> np.ndarray:
    """The first element of an output is taken as it is, or squared; then `n_finishing` more."""
    if not type.is_floating:
        return np.zeros(len(n_outs), np.int64)
    kind = REDUCE_OPS[operation]
    joins = REDUCE_OPS[kind.joined_by].flops * np.minimum(n_outs, n_elems)
    return kind.flops * n_elems - joins + n_finishing * n_outs


# Indices are unsigned: the host can then vectorise, since none counts from the end.
# Workers that share a vertex take columns in blocks, so that none stores part of a word.
_COLUMNS_OF_ALL = """
        first, last = 0, n_outs"""
_COLUMNS_OF_WORKER = """
        n_blocks = (n_outs + 3) // 4
        first = min(n_outs, n_blocks * worker_id // self.n_workers * 4)
        last = min(n_outs, n_blocks * (worker_id + 1) // self.n_workers * 4)"""
_INNER = """
        if self.is_inner:
            for j in range(n_outs):
                total = Acc(start)
                for s in range(len(self.parts)):
                    part = self.parts[s]
                    n = len(part) // n_outs
                    whole = j * n + n - n % 4
                    t0 = t1 = t2 = t3 = Acc(start)
                    for i in range(j * n, whole, 4):
                        t0 = {t0}
                        t1 = {t1}
                        t2 = {t2}
                        t3 = {t3}
                    for i in range(whole, j * n + n):
                        t0 = {t0}
                    t0 = {t01}
                    t2 = {t23}
                    t0 = {t02}
                    total = {joined}
                self.{acc}[j] = total"""
_OUTER = """
        if {is_outer}:
            for j in range(first, last):
                self.{acc}[j] = Acc(start)
            for s in range(len(self.parts)):
                part = self.parts[s]
                for base in range(0, len(part), n_outs):
                    for j in range(first, last):
                        self.{acc}[j] = {step}"""
_FINISH = """
        for j in range(first, last):
            self.out[j] = Out({finished})"""


@dataclass(frozen=True, slots=True)
class Finish:
    """What is done to a total: `scale` is "", "state" or "edge"; `updates` adds the old value."""

    scale: str = ""
    updates: bool = False


PLAIN = Finish()


def _text(operation: str, is_multi: bool, finish: Finish, is_cast: bool) -> str:
    """The source of a reduction vertex."""
    kind = REDUCE_OPS[operation]
    step, join = kind.step.format, REDUCE_OPS[kind.joined_by].step.format
    acc = "totals" if is_cast or finish != PLAIN else "out"
    fields = ["parts: Vector[Input[Vector[T]]]", "out: Result"]
    fields += ["totals: Output[Vector[Acc]]"] if acc == "totals" else []
    fields += ["scale: Scale"] if finish.scale else []
    fields += [] if is_multi else ["is_inner: BOOL"]
    texts = {f"t{k}": step(f"t{k}", f"Acc(part[uint64(i + {k})])") for k in range(4)}
    texts |= {"t01": join("t0", "t1"), "t23": join("t2", "t3"), "t02": join("t0", "t2")}
    texts |= {
        "joined": join("total", "t0"),
        "acc": acc,
        "step": step(f"self.{acc}[j]", "Acc(part[uint64(base + j)])"),
    }
    texts["is_outer"] = "True" if is_multi else "not self.is_inner"
    finished = "self.totals[j]" + " * self.scale" * bool(finish.scale)
    finished += " + Acc(self.out[j])" * finish.updates
    body = _COLUMNS_OF_WORKER if is_multi else _COLUMNS_OF_ALL
    body += ("" if is_multi else _INNER) + _OUTER + (_FINISH if acc == "totals" else "")
    return (
        f"class Reduce({'MultiVertex' if is_multi else 'Vertex'}):\n"
        + "".join(f"    {field}\n" for field in fields)
        + f"    def compute(self{', worker_id' * is_multi}):\n        n_outs = len(self.out)"
        + body.format(finished=finished, **texts) + "\n"
    )  # fmt: skip


# PopLibs' Reduce and ScaledReduce (popops/codelets): scaled pointers to results, partial results
# and the factor, a pointer to five half-words that say how partial results lie, and these.
INSTANCE_BYTES = 3 * 2 + 4 + 5 * 2


def _instance_bytes(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return np.full(len(v.sizes["out"]), INSTANCE_BYTES)


@family
def reduce_vertex(operation: str, T: Type, Out: Type, is_multi: bool, finish: Finish) -> type:  # noqa: N803
    """A worker with its own outputs or, `is_multi`, all that share a vector of outputs."""
    acc = accumulator_type(operation, T)
    names: dict[str, object] = {
        "T": T, "Out": Out, "Acc": acc, "start": REDUCE_OPS[operation].identity_of(acc),
        "uint64": UNSIGNED_LONGLONG, "BOOL": BOOL, "math": math,
        "Scale": Input[float32] if finish.scale == "edge" else float32,
        "Result": (InOut if finish.updates else Output)[Vector[Out]],
    }  # fmt: skip
    kind = REDUCE_OPS[operation]
    names |= {f.__name__: f for f in (*kind.functions, *REDUCE_OPS[kind.joined_by].functions)}
    cls = class_from_text(_text(operation, is_multi, finish, Out is not acc), "Reduce", names)

    def cycles(v: CostView, chip: Chip) -> np.ndarray:
        sizes = (v.sizes["out"], v.sizes["parts"], v.n_subs["parts"])
        if is_multi:
            return multi_cycles(operation, T, chip, *sizes)
        return worker_cycles(operation, T, chip, *sizes, v.state["is_inner"])

    def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
        n_finishing = bool(finish.scale) + finish.updates
        return reduce_flops(operation, T, v.sizes["out"], v.sizes["parts"], n_finishing)

    more = "".join(f",{x}" for x in (finish.scale, "update" * finish.updates) if x)
    cls.name = f"popops::Reduce{'Multi' * is_multi}<{operation},{T},{Out}{more}>"
    # PopLibs' STRIDED_REDUCE (popops/reduction/ReductionVertexDefs.hpp) has one pointer to partials
    # at equal distances, other vertices a list of them in the layout DELTAN.
    cls.strided_lists = ("parts",)
    cls.instance_bytes = staticmethod(_instance_bytes)
    # PopLibs' estimates, except that GC2's element cost was chosen from measured reductions.
    cls.provenance = "fitted"
    cls.cycles, cls.flops = staticmethod(cycles), staticmethod(flops)
    return cls
