"""Compute steps that Python drives: counted ones, and what their vertices returned."""

from tremula.runtime.loaded import LoadedProgram


def run_counted(loaded: LoadedProgram, step: int, pc: int) -> None:
    """Run a compute step with its counting kernels, and advance the clock by what they counted."""
    clock = loaded.clock
    clock.counted_steps.prepare(step, has_modes=loaded.machine_state.rounding_mode != 0)
    loaded.machine.count_step(clock, pc)
    clock.advance(step)


def store_result(loaded: LoadedProgram, pc: int, replica: int, result: int) -> None:
    """Write the AND of what vertices returned to the flag of Execute(cs, flag)."""
    address, n_bytes = loaded.executable.code[pc, 2], loaded.executable.code[pc, 3]
    if address >= 0:
        arena = loaded.storage.arenas[replica]
        arena[address : address + n_bytes] = 0
        arena[address] = result
