"""What pva asks of the tile program in a report: a step's variables and its code."""

import numpy as np

from tremula.codelets.columns import columns_of
from tremula.compiler.executable.executable import Executable
from tremula.compiler.executable.records import View
from tremula.compiler.passes.memory import CONTROL_INSTRUCTIONS_PER_STEP, exchange_code_bytes
from tremula.hardware import chip_from_toml

Ints = np.ndarray


def variables_of_step(executable: Executable, step: int) -> Ints:
    """Sorted ids of the variables that a step reads or writes."""
    return np.union1d(*accesses_of_step(executable, step))


def accesses_of_step(executable: Executable, step: int) -> tuple[Ints, Ints]:
    """Sorted ids of the variables that a step reads, and of those it writes."""
    record = executable.steps[step]
    reads, writes = map(_view_bytes, record.reads), map(_view_bytes, record.writes)
    if record.compute_set < 0:
        return _owners(executable, [*reads]), _owners(executable, [*writes])
    read, written = _compute_set_bytes(executable, record.compute_set)
    return _owners(executable, [*reads, *read]), _owners(executable, [*writes, *written])


def _owners(executable: Executable, parts: list[Ints]) -> Ints:
    """The variables in which these byte addresses lie."""
    addresses = np.concatenate([np.empty(0, np.int64), *parts])
    variables = executable.variables
    owner = np.searchsorted(variables.base_bytes, addresses, side="right") - 1
    # Scattered fields are gathered into scratch space, which is behind all variables.
    is_inside = (owner >= 0) & (addresses < variables.end_bytes[owner])
    is_found = np.zeros(len(variables.base_bytes), bool)
    is_found[owner[is_inside]] = True
    return np.flatnonzero(is_found)


def _view_bytes(view: View) -> Ints:
    """Byte addresses of the first element of each run: a run never spans variables."""
    return view.runs.start * view.type.n_bytes


def _compute_set_bytes(executable: Executable, number: int) -> tuple[list[Ints], list[Ints]]:
    """Byte addresses that a compute set reads, and those it writes."""
    compute_set = executable.compute_sets[number]
    read = [plan.source.start * plan.n_bytes for plan in compute_set.gathers]
    written = [plan.destination.start * plan.n_bytes for plan in compute_set.scatters]
    for table in compute_set.tables:
        fields = executable.codelets[table.codelet].spec.fields
        for column in columns_of(fields):
            if column.role != "offset":
                continue
            addresses = table.columns[column.index] * column.field.type.n_bytes
            if column.field.is_read:
                read.append(addresses)
            if column.field.is_written:
                written.append(addresses)
    return read, written


def exchange_code_of_step(executable: Executable, step: int) -> Ints:
    """int64[n_tiles]: bytes of a step's exchange code, as the memory pass counts them."""
    moved = executable.analysis.exchanges.of_step(step)
    result = np.zeros(executable.target.n_tiles, np.int64)
    for phase in (moved.before, moved.after):
        if phase is not None:
            result += exchange_code_bytes(phase, executable.target.chip)
    return result


def control_code_bytes(chip_toml: str) -> int:
    """Bytes of control code that a step takes on each tile of a chip that takes part."""
    return CONTROL_INSTRUCTIONS_PER_STEP * chip_from_toml(chip_toml).instruction_bytes
