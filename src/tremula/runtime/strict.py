"""Strict mode: what works on a forgiving model and breaks on hardware becomes an error.

A compute step runs twice from the same memory, in two vertex orders, with two poisons in its
Outputs. Whatever then differs, was touched without permission, or still holds poison, is reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import RuntimeFailure, StrictModeError
from tremula.base.types import as_type
from tremula.codelets.columns import columns_of
from tremula.codelets.python_codelet import PythonCodelet
from tremula.codelets.spec import Direction, FieldKind, FieldSpec
from tremula.compiler.executable.executable import Executable
from tremula.compiler.executable.records import TableRecord
from tremula.compiler.worker_states import n_states_bytes
from tremula.poplar.tensors.runs import expand
from tremula.runtime.interpreter.in_order import run_copies, run_in_order
from tremula.runtime.loaded import LoadedProgram

POISONS = (0xFF, 0x3F)  # as bytes of floats and halves: NaN, and a number of ordinary size


def poison_uninitialised(loaded: LoadedProgram) -> None:
    """Fill all memory without an initial value, also that between variables, with NaN bytes."""
    for arena in loaded.storage.arenas:
        arena[:] = POISONS[0]
    loaded.storage.reset()


def run_checked(loaded: LoadedProgram, step: int, pc: int) -> None:
    """Run one compute step under strict rules."""
    number = loaded.executable.steps[step].compute_set
    checks_results = loaded.machine_state.checks_results
    infinite = _with_infinite_operands(loaded, number) if checks_results else []
    if loaded.is_strict:
        for replica in range(loaded.n_replicas):
            _check_twice(loaded, number, replica)
    if loaded.clock.counted_steps.slot_of_step[step] >= 0:
        _run_counted(loaded, step, pc)
    else:
        for replica in range(loaded.n_replicas):
            result = _run_once(loaded, number, replica, _orders(loaded, number))
            _store_result(loaded, pc, replica, result)
        loaded.clock.advance(step)
    if checks_results:
        _check_results(loaded, number, infinite)


def _check_twice(loaded: LoadedProgram, number: int, replica: int) -> None:
    arena = loaded.storage.arenas[replica]
    before = arena.copy()
    states = _states(loaded, number, replica)
    saved = [column.copy() for column in states]
    rights = _rights(loaded, number)
    order = backwards = _orders(loaded, number)
    if not _draws_random(loaded, number):
        order = [(table, loaded.shuffle.permutation(rows)) for table, rows in order]
        # Backwards, so that of any two vertices each is the first one once.
        backwards = [(table, np.ascontiguousarray(rows[::-1])) for table, rows in reversed(order)]
    after = []
    for poison, orders in zip(POISONS, (order, backwards), strict=True):
        arena[:] = before
        arena[rights.must_write] = poison
        _restore(states, saved)
        poisoned = arena.copy()
        _run_once(loaded, number, replica, orders)
        _check_untouched(loaded, number, poisoned, arena)
        after.append(arena.copy())
    arena[:] = before
    _restore(states, saved)
    _compare(loaded, number, *after)


def _orders(loaded: LoadedProgram, number: int) -> list[tuple[int, np.ndarray]]:
    """The tables of a compute set, and the rows of each in their order."""
    first, last = loaded.tables.sets[number, :2]
    return [(table, np.arange(loaded.tables.n_rows[table])) for table in range(first, last)]


def _draws_random(loaded: LoadedProgram, number: int) -> bool:
    """Do its vertices draw from generators that vertices of a tile share? Then order matters."""
    first, last = loaded.tables.sets[number, :2]
    specs = [codelet.spec for codelet in loaded.tables.codelet_of[first:last]]
    is_stochastic = bool(loaded.machine_state.flags.get("esr"))
    return any(s.draws_random or (s.rounds_to_half and is_stochastic) for s in specs)


def _run_once(
    loaded: LoadedProgram, number: int, replica: int, orders: list[tuple[int, np.ndarray]]
) -> int:
    _run_copies(loaded, number, replica, is_gather=True)
    result = 1
    for table, rows in orders:
        result &= _run_rows(loaded, table, replica, rows)
    _run_copies(loaded, number, replica, is_gather=False)
    return result


def _states(loaded: LoadedProgram, number: int, replica: int) -> list[np.ndarray]:
    """Columns that the vertices of a compute set can change."""
    first, last = loaded.tables.sets[number, :2]
    tables = loaded.tables.table_columns[replica][first:last]
    return [column for columns in tables for column in columns if column.flags.writeable]


def _restore(states: list[np.ndarray], saved: list[np.ndarray]) -> None:
    for column, copy in zip(states, saved, strict=True):
        column[...] = copy


# -- what a compute set may do ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """An edge field of a table and the byte address of each of its elements."""

    codelet: str
    spec: FieldSpec
    table: int  # of the compute set
    row: np.ndarray  # the vertex of each element
    begin: np.ndarray


@dataclass(frozen=True, slots=True)
class _Rights:
    """What the vertices of a compute set may write and must write: bool[n_bytes] of the arena."""

    fields: tuple[_Field, ...]
    must_write: np.ndarray  # pure Outputs
    may_write: np.ndarray


def _rights(loaded: LoadedProgram, number: int) -> _Rights:
    """The rights of a compute set, worked out once per load."""
    result = loaded.strict_rights.get(number)
    if result is None:
        result = loaded.strict_rights[number] = _make_rights(loaded, number)
    return result


def _make_rights(loaded: LoadedProgram, number: int) -> _Rights:
    compute_set = loaded.executable.compute_sets[number]
    fields = tuple(_fields(loaded.executable, number))
    outputs, may_read, may_write = (np.zeros(loaded.storage.n_bytes, bool) for _ in range(3))
    for field in fields:
        is_output = field.spec.direction is Direction.OUTPUT
        _mark(outputs if is_output else may_read, field.begin, field.spec.type.n_bytes)
        if field.spec.is_written:
            _mark(may_write, field.begin, field.spec.type.n_bytes)
    for plan in compute_set.gathers:
        _mark(may_read, plan.source.addresses() * plan.n_bytes, plan.n_bytes)
    for plan in (*compute_set.gathers, *compute_set.scatters):
        _mark(may_write, plan.destination.addresses() * plan.n_bytes, plan.n_bytes)
    n_state_bytes = n_states_bytes(loaded.executable.target)
    first_state = loaded.executable.worker_states_byte
    may_write[first_state : first_state + n_state_bytes] = True
    # One vertex may alias its own Input and Output: what is read need not be written.
    return _Rights(fields, outputs & ~may_read, may_write)


def _mark(mask: np.ndarray, begin: np.ndarray, n_bytes: int) -> None:
    for byte in range(n_bytes):
        mask[begin + byte] = True


def _fields(executable: Executable, number: int) -> Iterator[_Field]:
    for i, table in enumerate(executable.compute_sets[number].tables):
        spec = executable.codelets[table.codelet].spec
        by_role = {(c.field.name, c.role): table.columns[c.index] for c in columns_of(spec.fields)}
        for field in spec.fields:
            if field.is_edge:
                offset = by_role[field.name, "offset"]
                is_scalar = field.kind in (FieldKind.SCALAR, FieldKind.SCALAR_LIST)
                length = np.ones_like(offset) if is_scalar else by_role[field.name, "length"]
                owner, within = expand(length)
                begin = (offset[owner] + within) * field.type.n_bytes
                if (field.name, "start") in by_role:  # the owner is an item of a vertex's list
                    owner = _rows_of_items(by_role[field.name, "start"])[owner]
                yield _Field(spec.name, field, i, owner, begin)


def _rows_of_items(start: np.ndarray) -> np.ndarray:
    """The row of every item of the lists that begin at `start`; its last entry ends the last."""
    return expand(np.diff(start))[0]


# -- the checks ------------------------------------------------------------------------------------


def _check_untouched(
    loaded: LoadedProgram, number: int, before: np.ndarray, arena: np.ndarray
) -> None:
    """Only Output and InOut bytes, and scratch, may change."""
    changed = np.flatnonzero((before != arena) & ~_rights(loaded, number).may_write)
    if len(changed):
        where = describe_byte(loaded.executable, int(changed[0]))
        raise _error(
            loaded.executable, number, f"a vertex wrote {where}, which no Output or InOut covers",
            "connect it as InOut, or check the codelet's indices",
        )  # fmt: skip


def _compare(loaded: LoadedProgram, number: int, first: np.ndarray, second: np.ndarray) -> None:
    rights = _rights(loaded, number)
    is_left = (first == POISONS[0]) & (second == POISONS[1]) & rights.must_write
    for field in rights.fields if is_left.any() else ():
        every = field.begin[:, None] + np.arange(field.spec.type.n_bytes)  # [n_elems, n_bytes]
        unwritten = np.flatnonzero(is_left[every].all(axis=1))
        if len(unwritten):
            where = describe_byte(loaded.executable, int(field.begin[unwritten[0]]))
            raise _error(
                loaded.executable, number,
                f"Output {field.codelet}.{field.spec.name} left {where} unwritten",
                "write every element, or make the field InOut",
            )  # fmt: skip
    n_variable_bytes = int(loaded.executable.variables.end_bytes[-1])
    differs = np.flatnonzero((first != second)[:n_variable_bytes])
    if len(differs):
        where = describe_byte(loaded.executable, int(differs[0]))
        raise _error(
            loaded.executable, number,
            f"{where} depends on the order of vertices or on what an Output held before",
            "read only Inputs and InOuts, and share nothing between vertices",
        )  # fmt: skip


def _error(executable: Executable, number: int, what: str, hint: str) -> StrictModeError:
    compute_set = executable.compute_sets[number]
    return StrictModeError(
        f"compute set {compute_set.name!r}: {what}.\n  at {compute_set.source}", hint=hint
    )


def describe_byte(executable: Executable, byte: int) -> str:
    """`element 3 of variable 'x'`, or where else a byte is."""
    variables = executable.variables
    variable = int(np.searchsorted(variables.base_bytes, byte, side="right")) - 1
    if variable < 0:
        return "memory before all variables"
    size = as_type(variables.type_names[variable]).n_bytes
    element = (byte - int(variables.base_bytes[variable])) // size
    if byte >= variables.end_bytes[variable]:
        return f"memory behind the end of variable {variables.names[variable]!r}"
    return f"element {element} of variable {variables.names[variable]!r}"


def _with_infinite_operands(loaded: LoadedProgram, number: int) -> list[list[np.ndarray]]:
    """For each replica and table, which vertices have an infinite operand before they run.

    An operation overflows only if all its operands are finite (IEEE 754): infinities that a vertex
    reads, or that its code has as a constant, may be passed on. Seen per vertex, not per element;
    an infinity in the code or the state counts for the whole table.
    """
    tables = loaded.executable.compute_sets[number].tables
    result = []
    for replica, arena in enumerate(loaded.storage.arenas):
        _run_copies(loaded, number, replica, is_gather=True)
        rows = [np.full(table.n_rows, _has_infinity(loaded, table)) for table in tables]
        for field in _rights(loaded, number).fields:
            if field.spec.is_read and field.spec.type.dtype.kind == "f":
                is_infinite = np.isinf(_values(field, arena))
                rows[field.table][field.row[is_infinite]] = True
        result.append(rows)
    return result


def _has_infinity(loaded: LoadedProgram, table: TableRecord) -> bool:
    """Whether the code or a constant of the state of a table's vertices is infinite."""
    codelet = loaded.executable.codelets[table.codelet]
    if isinstance(codelet, PythonCodelet) and "inf')" in codelet.kernel_text():
        return True
    return any(np.isinf(column).any() for column in table.columns if column.dtype.kind == "f")


def _values(field: _Field, arena: np.ndarray) -> np.ndarray:
    dtype = field.spec.type.dtype
    return arena.view(dtype)[field.begin // dtype.itemsize]


def _check_results(loaded: LoadedProgram, number: int, infinite: list[list[np.ndarray]]) -> None:
    """Raise if a float result of a step is NaN or overflowed and that exception is enabled."""
    flags = loaded.machine_state.flags
    stops = bool(flags.get("oflo") or flags.get("div0"))
    for replica, arena in enumerate(loaded.storage.arenas):
        for field in _rights(loaded, number).fields:
            if not field.spec.is_written or field.spec.type.dtype.kind != "f":
                continue
            values = _values(field, arena)
            is_invalid = np.isnan(values) & bool(flags.get("inv"))
            is_infinite = np.isinf(values) & ~infinite[replica][field.table][field.row] & stops
            bad = np.flatnonzero(is_invalid | is_infinite)
            if len(bad):
                kind = "invalid operation" if is_invalid[bad[0]] else "overflow or division by zero"
                where = describe_byte(loaded.executable, int(field.begin[bad[0]]))
                name = loaded.executable.compute_sets[number].name
                raise RuntimeFailure(
                    f"floating-point {kind}: field {field.codelet}.{field.spec.name} wrote "
                    f"{values[bad[0]]} to {where} in compute set {name!r}.",
                    hint="check the inputs, or turn the exception off",
                )


# -- steps that Python drives ----------------------------------------------------------------------


def _run_counted(loaded: LoadedProgram, step: int, pc: int) -> None:
    """Run a compute step with its counting kernels, and advance the clock by what they counted."""
    clock = loaded.clock
    clock.counted_steps.prepare(step, has_modes=loaded.machine_state.rounding_mode != 0)
    loaded.machine.count_step(clock, pc)
    clock.advance(step)


def _store_result(loaded: LoadedProgram, pc: int, replica: int, result: int) -> None:
    """Write the AND of what vertices returned to the flag of Execute(cs, flag)."""
    address, n_bytes = loaded.executable.code[pc, 2], loaded.executable.code[pc, 3]
    if address >= 0:
        arena = loaded.storage.arenas[replica]
        arena[address : address + n_bytes] = 0
        arena[address] = result


def _run_copies(loaded: LoadedProgram, compute_set: int, replica: int, *, is_gather: bool) -> None:
    """The gathers before a compute set's kernels, or the scatters after them."""
    begin = 2 if is_gather else 4
    first, last = loaded.tables.sets[compute_set, begin : begin + 2]
    arena = loaded.storage.addresses[replica]
    run_copies(loaded.machine.address, arena, first, last)


def _run_rows(loaded: LoadedProgram, table: int, replica: int, rows: np.ndarray) -> int:
    """Run rows of a table one after another in the given order."""
    tables, rows = loaded.tables, np.ascontiguousarray(rows, np.int64)
    return run_in_order(
        tables.kernel[table],
        loaded.storage.addresses[replica],
        tables.columns[replica, table],
        rows.ctypes.data,
        len(rows),
    )
