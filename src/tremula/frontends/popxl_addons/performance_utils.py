"""Floating-point operations of a program, counted from its graphs.

Counted are products, norms, and additions, subtractions, multiplications and divisions of elements.
A breakdown is a dictionary: by kind of operation a number for each operation, with calls and loops
as separate dictionaries, and the sum under "TOT".
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import floor, log10, prod
from typing import Any, Literal

import popxl
from tremula.frontends.popxl.core.op import Op

Unit = Literal["K", "M", "G", "T", "nearest3"]
EXPONENTS = {"K": 3, "M": 6, "G": 9, "T": 12}
TOTAL = "TOT"
Breakdown = dict[str, Any]


def total_FLOPs(ir: popxl.Ir) -> int:
    """Floating-point operations of one run of a program, on all replicas."""
    return evaluate_ir_FLOPs(ir)[TOTAL]


def evaluate_ir_FLOPs(ir: popxl.Ir) -> Breakdown:
    """The breakdown of one run of a program, on all replicas."""
    return _times(evaluate_FLOPs(ir.main_graph), ir.replication_factor)


def evaluate_FLOPs(graph: popxl.Graph) -> Breakdown:
    """The breakdown of one run of a graph, with the graphs that it calls."""
    return _breakdown(graph, {})


def matmul_flops(op: Op) -> int:
    """A multiplication and an addition for each element of the result and of the inner size."""
    return 2 * _shape(op, 0)[-1] * prod(_output_shape(op))


def elementwise_binary_flops(op: Op) -> int:
    """One for each element of the result."""
    return prod(_output_shape(op))


def group_norm_flops(op: Op) -> int:
    """Mean and variance of each group, then subtraction, scaling, weight and bias of elements."""
    op = _op(op)
    x = op.operand("x") or op.inputs[0]
    n_groups = int(op.attributes.get("num_groups", 1))
    n_means = x.shape[0] * n_groups
    n_averaged = prod(x.shape[1:]) // n_groups
    means = n_averaged
    deviations = 2 * n_averaged + 2 * n_means
    return means + deviations + 4 * prod(_output_shape(op))


COUNTS: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(("Add", "Sub", "Div", "Mul"), elementwise_binary_flops),
    "MatMul": matmul_flops,
    "GroupNormalization": group_norm_flops,
}


def _op(op: Any) -> Op:
    """The operation of a view, as `popart._internal.ir` returns it."""
    return getattr(op, "_op", op)


def _shape(op: object, index: int) -> tuple[int, ...]:
    return _op(op).inputs[index].shape


def _output_shape(op: object) -> tuple[int, ...]:
    return _op(op).outputs[0].shape


def _breakdown(graph: popxl.Graph, known: dict[popxl.Graph, Breakdown]) -> Breakdown:
    if graph in known:
        return known[graph]
    result: dict[str, Any] = defaultdict(dict)
    total = 0
    for op in graph.ops:
        if op.graphs:
            # Of a branch, the larger side counts.
            called = max((_breakdown(g, known) for g in op.graphs), key=lambda b: b[TOTAL])
            called = _times(called, op.attributes.get("repeat_count", 1))
            total += called[TOTAL]
            name = re.sub(r"_subgraph[(][0-9]+[)]", "", op.graphs[0].id)
            for kind, value in called.items():
                result[kind][f"{op.kind}_{op.id}({name})"] = value
        elif op.kind in COUNTS:
            flops = COUNTS[op.kind](op)
            total += flops
            result[op.kind][op.id] = flops
    known[graph] = {**result, TOTAL: total}
    return known[graph]


def _times(value: Any, factor: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _times(inner, factor) for key, inner in value.items()}
    return value * factor


def _sum(value: Any) -> int:
    return sum(map(_sum, value.values())) if isinstance(value, Mapping) else value


def print_FLOPs(
    flops_breakdown: Breakdown,
    mode: Literal["type", "flat"] = "type",
    numerical_format: Unit = "nearest3",
) -> None:
    """Print a breakdown, largest first: by kind of operation, or each operation ("flat")."""
    if mode not in ("type", "flat"):
        raise ValueError(f"mode must be 'type' or 'flat', got {mode!r}")
    rows = [("Op Type", "FLOPs", "%" if mode == "type" else "Op Name")]
    if mode == "type":
        sums = {kind: _sum(value) for kind, value in flops_breakdown.items()}
        whole = sums[TOTAL] or 1
        rows += [
            (kind, format_flops_scientific(n, numerical_format), f"{100 * n / whole:.1f}")
            for kind, n in sorted(sums.items(), key=lambda item: -item[1])
        ]
    else:
        flat = {name: n for name, n in _flat(flops_breakdown).items() if name != TOTAL}
        rows += [
            (name.split(".")[0], format_flops_scientific(n, numerical_format), name)
            for name, n in sorted(flat.items(), key=lambda item: -item[1])
        ]
        rows.append((TOTAL, format_flops_scientific(flops_breakdown[TOTAL], numerical_format), ""))
    print(_table(rows))  # noqa: T201  what it is for


def _flat(breakdown: Mapping[Any, Any], prefix: str = "") -> dict[str, int]:
    result = {}
    for key, value in breakdown.items():
        if isinstance(value, Mapping):
            result.update(_flat(value, f"{prefix}{key}."))
        else:
            result[f"{prefix}{key}"] = value
    return result


def _table(rows: list[tuple[str, str, str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 6), *lines[1:]])


def format_flops_scientific(val: float, format: Unit = "nearest3") -> str:
    """A number with an exponent: of a unit, or the multiple of three that is nearest.

    >>> format_flops_scientific(9072), format_flops_scientific(5e9, "T")
    ('9.072E+03', '0.005E+12')
    """
    if format not in (*EXPONENTS, "nearest3"):
        raise ValueError(f"format must be one of {(*EXPONENTS, 'nearest3')}, got {format!r}")
    power = floor(log10(abs(val))) if val > 0 else 0
    exponent = EXPONENTS[format] if format != "nearest3" else 3 * (power // 3 + (power % 3 == 2))
    return f"{val * 10.0**-exponent:.3f}E{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
