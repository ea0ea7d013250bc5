"""What a program would take if it ran: its control flow walked on the modelled clock.

Only programs whose loops and branches do not depend on data can be foretold; the others must run.
"""

import numpy as np

from tremula.base.errors import MissingPerfEstimate, MissingProfileData
from tremula.compiler.executable import Executable
from tremula.compiler.form import Op
from tremula.compiler.report import Report, make_report
from tremula.runtime.clock import Clock

_BRANCHES = {Op.BRANCH_ZERO, Op.BRANCH_NONZERO, Op.SWITCH, Op.LOOP_FOREVER}


def forecast(executable: Executable, program: int | str = 0) -> Report:
    """The report of one run of a program, without loading or running it."""
    number = executable.names.index(program) if isinstance(program, str) else program
    walk = _Walk(executable)
    walk.run(executable.entries[number])
    return make_report(executable, walk.clock.execution())


class _Walk:
    def __init__(self, executable: Executable):
        self.executable = executable
        self.clock = Clock(executable)
        self.code = [tuple(map(int, row)) for row in executable.code]
        self.step_of = [int(step) for step in executable.step_of]

    def run(self, pc: int) -> int:
        """Walk to the end of a program, a function or a loop's body; where that was."""
        while True:
            op, *operands = self.code[pc]
            if self.step_of[pc] >= 0:
                self._advance(self.step_of[pc])
            if op in (Op.END, Op.RETURN, Op.LOOP_END):
                return pc
            if op in _BRANCHES:
                raise self._depends_on_data(pc)
            if op == Op.LOOP_BEGIN:
                pc = self._loop(pc + 1, operands[1], operands[2])
            elif op == Op.CALL:
                self.run(operands[0])
                pc += 1
            else:
                pc = operands[0] if op == Op.JUMP else pc + 1

    def _loop(self, body: int, count: int, after: int) -> int:
        """Iterations are walked until one takes what the last one took; the rest are alike."""
        clock, delta = self.clock, None
        for done in range(count):
            chips, executed = clock.cycles_of_chip.copy(), clock.executed.copy()
            end = self.run(body)
            after = end + 1
            step = clock.cycles_of_chip - chips, clock.executed - executed
            if delta is not None and np.array_equal(delta, step[0]):
                clock.cycles_of_chip += step[0] * (count - done - 1)
                clock.executed += step[1] * (count - done - 1)
                break
            delta = step[0]
        return after

    def _advance(self, step: int) -> None:
        if self.clock.needs_count[step]:
            raise MissingPerfEstimate(
                f"step {self.executable.steps[step].name!r} has a codelet whose cycles depend on"
                " its data.",
                mend="run the program instead, or give the codelet a cycles method",
            )
        self.clock.advance(step)

    def _depends_on_data(self, pc: int) -> MissingProfileData:
        step = self.step_of[pc]
        name = self.executable.steps[step].name if step >= 0 else "a branch"
        return MissingProfileData(
            f"{name} depends on data, so the cycles of the program cannot be foretold.",
            mend="run the program on tiles and take its report",
        )
