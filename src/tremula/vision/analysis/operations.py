"""Operations: steps grouped by the part of the program they belong to, with cycles and roofline."""

import numpy as np

from tremula.compiler.report.phases import PHASES
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray


def operation_of_step(reader: ReportReader) -> tuple[list[str], Ints]:
    """Names of operations in order of their first step, and int64[n_steps]: each step's.

    "encoder/matmul/reduce" is a step of the operation "encoder/matmul", and so is a step with just
    that name. A name without a parent is an operation by itself.
    """
    paths: list[str] = reader.table("steps")["path"]
    above = {path: path.rpartition("/")[0] for path in paths}
    is_group = set(above.values())
    number_of: dict[str, int] = {}
    result = []
    for path in paths:
        name = path if path in is_group else above[path] or path
        result.append(number_of.setdefault(name, len(number_of)))
    return list(number_of), np.array(result, np.int64)


def makers_of_variables(reader: ReportReader) -> Ints:
    """int64[n_variables]: the first step whose name is nearest to a variable's; -1 for none.

    "layer/matmul/partials" is made by a step "layer/matmul/…", wherever that runs: the programs
    that a step is in (a pipeline's stage, say) are not part of its name.
    """
    step_of: dict[str, int] = {}
    for step, name in enumerate(reader.table("steps")["name"]):
        while name and name not in step_of:
            step_of[name] = step
            name = name.rpartition("/")[0]
    result = []
    for name in reader.table("variables")["name"]:
        while name and name not in step_of:
            name = name.rpartition("/")[0]
        result.append(step_of.get(name, -1))
    return np.array(result, np.int64)


def _per_operation(operation: Ints, n: int, values: Ints) -> Ints:
    return np.bincount(operation, weights=values.astype(np.float64), minlength=n).astype(np.int64)


def operation_columns(reader: ReportReader) -> dict[str, object]:
    """One row per operation: int64 columns over everything that ran, and names.

    `path_cycles` and its five phases `path_compute`, … are on the critical path and add up to the
    total; `busy_cycles` and its phases `compute`, … are what chips spend on an operation, all
    together, on the path or not.
    """
    names, operation = operation_of_step(reader)
    steps, n = reader.table("steps"), len(names)
    executed, busy = steps["executed"], reader.busy_of_steps.sum(axis=1)
    on_path = _per_operation(operation, n, steps["total_cycles"])
    sums = {
        "path_cycles": on_path,
        "cycles": on_path,  # its name in reports before schema 2.1
        **{f"path_{name}": _per_operation(operation, n, steps[f"path_{name}"]) for name in PHASES},
        "busy_cycles": _per_operation(operation, n, steps["busy_cycles"]),
        **{name: _per_operation(operation, n, busy[:, i]) for i, name in enumerate(PHASES)},
        "n_flops": _per_operation(operation, n, steps["n_flops"] * executed),
        "peak_cycles": _per_operation(operation, n, steps["peak_cycles"] * executed),
        "n_steps": np.bincount(operation, minlength=n),
        "executed": _per_operation(operation, n, executed),
        "bytes_moved": _per_operation(operation, n, steps["bytes_in"] * executed),
        "n_vertices": _per_operation(operation, n, _vertices_of_step(reader)),
    }
    first = np.full(n, reader.n_steps, np.int64)
    np.minimum.at(first, operation, np.arange(len(operation)))
    last = np.zeros(n, np.int64)
    np.maximum.at(last, operation, np.arange(len(operation)))
    largest = np.zeros(n, np.int64)
    np.maximum.at(largest, operation, steps["temporary_bytes"])
    return {
        "name": names,
        **sums,
        "first_step": first,
        "last_step": last,
        "largest_temporary_bytes": largest,
        "variable_bytes": _variable_bytes(reader, operation, n),
        **_roofline(reader, sums, np.bincount(operation, ideal_cycles(reader) * executed, n)),
        "bound": _bounds(sums),
        "balance": _balance(operation, n, steps),
        "source": [steps["source"][i] for i in first.tolist()],
    }


def _variable_bytes(reader: ReportReader, operation: Ints, n: int) -> Ints:
    """Bytes of the variables that each operation made."""
    makers, sizes = makers_of_variables(reader), reader.table("variables")["n_bytes"]
    known = makers >= 0
    return _per_operation(operation[makers[known]], n, sizes[known])


def _vertices_of_step(reader: ReportReader) -> Ints:
    counts = np.append(reader.table("compute_sets")["n_vertices"], 0)
    return counts[reader.table("steps")["compute_set"]]  # row -1 is the appended zero


def ideal_cycles(reader: ReportReader) -> Ints:
    """float64[n_steps]: chip-cycles of one execution at best.

    The longer of computing at the peak and receiving at the full rate, on all tiles of the chips
    that take part, flops at the peak of their unit and types. Tiles that share a bus can receive
    faster than the rate; then the exchange's own cycles are the ideal.
    """
    steps, per_chip = reader.table("steps"), reader.tiles_per_ipu
    rate = reader.target["exchange_bytes_per_cycle"] * per_chip
    of_chips = reader.phases_of_steps.sum(axis=1)
    transfers = of_chips[:, 1:4].sum(axis=1)
    moving = np.minimum(steps["bytes_in"] / max(1, rate), transfers)
    return np.maximum(steps["peak_cycles"] / per_chip, moving)


def _roofline(reader: ReportReader, sums: dict[str, Ints], ideal: Ints) -> dict[str, Ints]:
    """float64 columns; 0 where nothing ran, or for `intensity` where nothing moves."""
    busy = np.maximum(sums["busy_cycles"], 1)
    moved = np.maximum(sums["bytes_moved"], 1)
    return {
        "flops_per_cycle": sums["n_flops"] / busy,
        "efficiency": sums["peak_cycles"] / (busy * reader.tiles_per_ipu),
        "roofline": ideal / busy,
        "intensity": np.where(sums["bytes_moved"] > 0, sums["n_flops"] / moved, 0.0),
    }


def _bounds(sums: dict[str, Ints]) -> list[str]:
    """What most chip-cycles of each operation go into; empty if it took none."""
    parts = np.stack([sums[name] for name in PHASES])
    names = np.array(PHASES)
    return np.where(parts.any(axis=0), names[parts.argmax(axis=0)], "").tolist()


def _balance(operation: Ints, n: int, steps: dict) -> Ints:
    """float64: tile balance of an operation's steps, weighted by their compute."""
    weight = (steps["compute"] * np.maximum(steps["executed"], 1)).astype(np.float64)
    weighted = np.bincount(operation, weights=weight * steps["balance"], minlength=n)
    total = np.bincount(operation, weights=weight, minlength=n)
    return np.where(total > 0, weighted / np.maximum(total, 1), 1.0)
