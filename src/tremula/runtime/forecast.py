"""What a program would take if it ran: its control flow walked on the modelled clock.

Nothing is loaded or computed: a walk reads the instructions and the costs of an executable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tremula.base.errors import MissingPerfEstimate, MissingProfileData
from tremula.compiler.executable.executable import Executable
from tremula.compiler.program_ir import DATA_DECIDES, Opcode, StepKind
from tremula.compiler.report.report import ProgramReport, make_report
from tremula.runtime.clock import Clock

_EXITS = {Opcode.BRANCH_ZERO, Opcode.BRANCH_NONZERO}  # of loops, when met a second time
_TRANSFERS = {StepKind.STREAM_IN, StepKind.STREAM_OUT}


def forecast(executable: Executable, program: int | str = 0) -> ProgramReport:
    """The report of one run of a program, without loading or running it.

    Only programs whose loops and branches do not depend on data can be forecast; others must run.
    """
    number = executable.names.index(program) if isinstance(program, str) else program
    walk = ForecastWalk(executable, Clock(executable))
    with walk.clock.run(number, is_foretold=True):
        walk.run(executable.entries[number])
    return make_report(executable, walk.clock.execution())


def forecast_or_run(executable: Executable, run: Callable[[], ProgramReport]) -> ProgramReport:
    """The report of one run: a forecast, or where cycles depend on data, the result of `run()`.

    `run` runs the program once on an engine that has not run before, and returns its report.
    """
    try:
        return forecast(executable)
    except (MissingProfileData, MissingPerfEstimate):
        return run()


@dataclass(frozen=True, slots=True)
class Transfers:
    """When the stream copies of a run began and ended, in cycles; rows in the order they ran."""

    steps: np.ndarray  # int64[n]
    begin: np.ndarray
    end: np.ndarray
    total_cycles: int


def foretell_transfers(executable: Executable, clock: Clock) -> Transfers:
    """Walk the first program, and note its stream copies.

    A branch that depends on data counts as passed through, once in each iteration of a loop around
    it. A step that should have been counted but lies behind a branch that no run took has no
    compute cycles.
    """
    walk = ForecastWalk(executable, clock, passes_branches=True)
    walk.run(executable.entries[0])
    noted = np.array(walk.transfers, np.int64).reshape(-1, 3)
    return Transfers(noted[:, 0], noted[:, 1], noted[:, 2], clock.total_cycles)


@dataclass
class ForecastWalk:
    """One path through the instructions; the clock keeps what it took."""

    executable: Executable
    clock: Clock
    passes_branches: bool = False  # otherwise a branch that depends on data is an error
    transfers: list[tuple[int, int, int]] = field(default_factory=list)  # step, begin, end

    def __post_init__(self) -> None:
        self._code: list[list[int]] = self.executable.code.tolist()
        self._step_of: list[int] = self.executable.step_of.tolist()
        self._is_transfer = [step.kind in _TRANSFERS for step in self.executable.steps]

    def run(self, pc: int) -> int:
        """Walk to the end of a program, a function or a loop's body; where that was."""
        passed: set[int] = set()
        while True:
            op, *operands = self._code[pc]
            if self._step_of[pc] >= 0:
                self._advance(self._step_of[pc])
            if op in (Opcode.END, Opcode.RETURN, Opcode.LOOP_END):
                return pc
            if op in DATA_DECIDES and not self.passes_branches:
                raise self._depends_on_data(pc)
            if op == Opcode.LOOP_BEGIN:
                pc = self._loop(pc + 1, operands[1], operands[2])
            elif op == Opcode.CALL:
                self.run(operands[0])
                pc += 1
            elif op == Opcode.JUMP:
                pc = operands[0]
            elif op in _EXITS and pc in passed:
                pc = operands[2]
            else:
                passed.add(pc)
                pc += 1

    def _loop(self, body: int, count: int, after: int) -> int:
        """Iterations are walked until one takes what the last one took; the rest are alike."""
        clock, delta = self.clock, None
        for done in range(count):
            chips, executed = clock.cycles_of_chip.copy(), clock.executed.copy()
            n_transfers = len(self.transfers)
            after = self.run(body) + 1
            step = clock.cycles_of_chip - chips
            if delta is not None and np.array_equal(delta, step):
                n_more = count - done - 1
                clock.cycles_of_chip += step * n_more
                clock.executed += (clock.executed - executed) * n_more
                self._repeat(self.transfers[n_transfers:], int(step.max()), n_more)
                break
            delta = step
        return after

    def _repeat(self, noted: list[tuple[int, int, int]], cycles: int, n_times: int) -> None:
        """Repeat the transfers of an iteration: they join all chips, so stay equally far apart."""
        for shift in (cycles * time for time in range(1, n_times + 1)):
            self.transfers += [(step, begin + shift, end + shift) for step, begin, end in noted]

    def _advance(self, step: int) -> None:
        if self.clock.needs_count[step] and not self.passes_branches:
            raise MissingPerfEstimate(
                f"step {self.executable.steps[step].name!r} has a codelet whose cycles depend on"
                " its data.",
                hint="run the program instead, or give the codelet a cycles method",
            )
        begin = self.clock.total_cycles if self._is_transfer[step] else 0
        self.clock.advance(step)
        if self._is_transfer[step]:
            self.transfers.append((step, begin, self.clock.total_cycles))

    def _depends_on_data(self, pc: int) -> MissingProfileData:
        step = self._step_of[pc]
        name = self.executable.steps[step].name if step >= 0 else "a branch"
        return MissingProfileData(
            f"{name} depends on data, so the program's cycles cannot be forecast.",
            hint="run the program on tiles and take its report",
        )
