"""Checks of an executable read from a file: every address and target it names is in range."""

import numpy as np

from tremula.base.errors import FileLoadError, PoplarError
from tremula.codelets.columns import columns_of
from tremula.codelets.spec import FieldKind
from tremula.compiler.executable import Executable, TableRecord, View
from tremula.compiler.form import N_OPERANDS, CopyPlan, Op
from tremula.poplar.runs import Runs

_TARGET_OPERANDS = {
    Op.JUMP: (0,), Op.LOOP_BEGIN: (2,), Op.LOOP_END: (1,), Op.BRANCH_ZERO: (2,),
    Op.BRANCH_NONZERO: (2,), Op.SWITCH: (4,), Op.CALL: (0,), Op.LOOP_FOREVER: (0,),
}  # fmt: skip


class _Inconsistent(Exception):
    """What is wrong, in a few words."""


def validate(executable: Executable, path: str) -> None:
    """Raise FileLoadError unless everything the executable refers to exists."""
    try:
        _check_code(executable)
        _check_copies(executable)
        _check_tables(executable)
        _check_views(executable)
    except (
        _Inconsistent,
        PoplarError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
    ) as error:
        raise FileLoadError(
            f"{path!r} is inconsistent: {error}.", mend="compile the program again"
        ) from error


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _Inconsistent(what)


def _check_code(executable: Executable) -> None:
    code, n_steps = executable.code, len(executable.steps)
    _require(code.ndim == 2 and code.shape[1] == 1 + N_OPERANDS, "the code has the wrong shape")
    _require(len(executable.step_of) == len(code) > 0, "steps and code differ in length")
    _require(bool((executable.step_of < n_steps).all()), "an instruction names a missing step")
    op = code[:, 0]
    _require(bool(((op >= 0) & (op <= max(Op))).all()), "an instruction is unknown")
    for kind, operands in _TARGET_OPERANDS.items():
        for operand in operands:
            _check_range(code[op == kind, 1 + operand], len(code), "a jump leaves the code")
    _check_range(np.array(executable.entries), len(code), "an entry point is missing")
    _check_range(executable.switch_cases[:, 1], len(code), "a case leaves the code")
    _check_range(
        code[op == Op.EXECUTE, 1], len(executable.compute_sets), "a compute set is missing"
    )
    _check_range(code[op == Op.COPY, 1], len(executable.copies), "a copy is missing")
    for kind in (Op.LOOP_BEGIN, Op.LOOP_END):
        _check_range(code[op == kind, 1], executable.n_loop_slots, "a loop counter is missing")
    for kind, size in ((Op.BRANCH_ZERO, 2), (Op.BRANCH_NONZERO, 2), (Op.SWITCH, 2)):
        rows = code[op == kind]
        _check_range(
            rows[:, 1] + rows[:, size], executable.n_arena_bytes + 1, "a predicate is outside"
        )
    ends = op[-1] in (Op.END, Op.RETURN, Op.JUMP, Op.LOOP_FOREVER)
    _require(bool(ends), "the code does not end")


def _check_range(values: np.ndarray, limit: int, what: str) -> None:
    _require(bool(((values >= 0) & (values < limit)).all()), what)


def _check_runs(runs: Runs, n_elems: int, what: str) -> None:
    last = runs.start + runs.stride * np.maximum(runs.count - 1, 0)
    inside = (np.minimum(runs.start, last) >= 0) & (np.maximum(runs.start, last) < n_elems)
    _require(bool((inside | (runs.count == 0)).all()) and bool((runs.count >= 0).all()), what)


def _check_copies(executable: Executable) -> None:
    copies = [
        *executable.copies,
        *(c for cs in executable.compute_sets for c in (*cs.gathers, *cs.scatters)),
    ]
    for copy in copies:
        _require(isinstance(copy, CopyPlan) and copy.n_bytes in (1, 2, 4, 8), "a copy is malformed")
        n_elems = executable.n_arena_bytes // copy.n_bytes
        _require(np.array_equal(copy.source.count, copy.destination.count), "a copy is uneven")
        for runs in (copy.source, copy.destination):
            _check_runs(runs, n_elems, "a copy leaves the memory")


def _check_tables(executable: Executable) -> None:
    for compute_set in executable.compute_sets:
        for table in compute_set.tables:
            _check_range(
                np.array([table.codelet]), len(executable.codelet_forms), "no such codelet"
            )
            _check_table(table, executable)


def _check_table(table: TableRecord, executable: Executable) -> None:
    fields = executable.codelets[table.codelet].spec.fields
    columns = columns_of(fields)
    _require(len(columns) == len(table.columns), "a vertex table has missing columns")
    start = np.zeros(0, np.int64)
    offset = start
    for column in columns:
        values = table.columns[column.index]
        _require(values.dtype == column.dtype, "a column has the wrong type")
        is_list = column.field.kind in (
            FieldKind.VECTOR_LIST,
            FieldKind.SCALAR_LIST,
            FieldKind.STATE_VECTOR,
        )
        if column.role == "start":
            start = values
            _require(
                len(start) == table.n_rows + 1
                and start[0] == 0
                and bool((np.diff(start) >= 0).all()),
                "a list column is not ascending",
            )
            continue
        expected = int(start[-1]) if is_list and column.role != "metadata" else table.n_rows
        _require(len(values) == expected, "a column has the wrong length")
        n_elems = executable.n_arena_bytes // column.field.type.n_bytes
        if column.role == "offset":
            offset = values
            _check_range(values, n_elems, "a field lies outside the memory")
        elif column.role == "length":
            _check_range(values, n_elems + 1, "a field is too long")
            _check_range(offset + values, n_elems + 1, "a field reaches outside the memory")
        elif column.role == "metadata":
            _check_range(values, executable.n_arena_bytes, "metadata lies outside the memory")


def _check_views(executable: Executable) -> None:
    host = executable.host
    views: list[View] = [
        *host.writes.values(),
        *host.reads.values(),
        *(v for step in executable.steps for v in (*step.reads, *step.writes)),
        *(initial.view for initial in executable.initial_values),
    ]
    for view in views:
        _check_runs(
            view.runs, executable.n_arena_bytes // view.type.n_bytes, "a tensor lies outside"
        )
        _require(
            view.n_elems == int(np.prod(view.shape, dtype=np.int64)), "a tensor's shape is wrong"
        )
