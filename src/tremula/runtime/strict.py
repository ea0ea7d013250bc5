"""Strict mode: what works on a forgiving model and breaks on hardware becomes an error.

A compute step runs twice from the same memory, in two vertex orders, with two poisons in its
Outputs. Whatever then differs, was touched without permission, or still holds poison, is reported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import RuntimeFailure, StrictModeError
from tremula.base.types import as_type
from tremula.codelets.columns import columns_of
from tremula.codelets.python_codelet import PythonCodelet
from tremula.codelets.spec import Codelet, Direction, FieldKind, FieldSpec
from tremula.compiler.executable.executable import Executable
from tremula.compiler.worker_states import n_states_bytes
from tremula.poplar.tensors.runs import expand
from tremula.runtime import interpreter
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
    if loaded.machine_state.checks_results:
        _check_results(loaded, number)


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
    begin: np.ndarray
    may_be_infinite: bool  # an infinity in it need not come from an overflow


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
    for table in executable.compute_sets[number].tables:
        codelet = executable.codelets[table.codelet]
        spec = codelet.spec
        by_role = {(c.field.name, c.role): table.columns[c.index] for c in columns_of(spec.fields)}
        for field in spec.fields:
            if field.is_edge:
                offset = by_role[field.name, "offset"]
                is_scalar = field.kind in (FieldKind.SCALAR, FieldKind.SCALAR_LIST)
                length = np.ones_like(offset) if is_scalar else by_role[field.name, "length"]
                owner, within = expand(length)
                begin = (offset[owner] + within) * field.type.n_bytes
                yield _Field(spec.name, field, begin, _may_write_infinity(codelet))


# Operations that hand on one of their operands, as names of codelets write them: `Op1D<max(_1, _2),
# float,…>`, `JoinPartials<float,max>`. None of them rounds, so none overflows.
_CHOOSING = frozenset(("max", "min", "select", "clamp", "set"))
_OPERATION_IN_NAME = re.compile(r"[a-z_]\w*(?=\()|(?<=,)[a-z]+(?=>)")


def _may_write_infinity(codelet: Codelet) -> bool:
    """Whether an infinity is no overflow: the code names one, or it only chooses among operands."""
    if isinstance(codelet, PythonCodelet) and "inf')" in codelet.kernel_text():
        return True
    operations = set(_OPERATION_IN_NAME.findall(codelet.spec.name))
    return bool(operations) and operations <= _CHOOSING


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


def _check_results(loaded: LoadedProgram, number: int) -> None:
    """Raise if a float result of a step is NaN or infinite and that exception is enabled."""
    flags = loaded.machine_state.flags
    for arena in loaded.storage.arenas:
        for field in _rights(loaded, number).fields:
            dtype = field.spec.type.dtype
            if not field.spec.is_written or dtype.kind != "f":
                continue
            values = arena.view(dtype)[field.begin // dtype.itemsize]
            is_invalid = np.isnan(values) & bool(flags.get("inv"))
            stops = (flags.get("oflo") or flags.get("div0")) and not field.may_be_infinite
            is_infinite = np.isinf(values) & bool(stops)
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
    interpreter.run_copies(loaded.machine.address, arena, first, last)


def _run_rows(loaded: LoadedProgram, table: int, replica: int, rows: np.ndarray) -> int:
    """Run rows of a table one after another in the given order."""
    tables, rows = loaded.tables, np.ascontiguousarray(rows, np.int64)
    return interpreter.run_in_order(
        tables.kernel[table],
        loaded.storage.addresses[replica],
        tables.columns[replica, table],
        rows.ctypes.data,
        len(rows),
    )
