"""Transfers that no step waits for: how much of them the steps at the same time hide.

A copy between host and tiles that are set aside for it runs while other tiles compute. It ends
before the next step that uses its tiles begins; so what it takes is hidden up to the time of the
steps in between, and only the rest is on the clock:

    load next ─┐ ............. beside                   ┌─ copy to the tiles that compute
               └─ step ─ step ─ loop of steps ─ step ───┘
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.passes.exchange import StepExchanges
from tremula.compiler.program_ir import DATA_DECIDES, Opcode, Step

Ints = np.ndarray
_ENDS = (Opcode.END, Opcode.RETURN, Opcode.LOOP_END)


def hide_transfers(
    costs: StepCosts, code: Ints, step_of: Ints, steps: Sequence[Step], exchanges: StepExchanges
) -> StepCosts:
    """The costs with what is hidden of transfers left out."""
    is_beside = [isinstance(s.detail, dict) and s.detail.get("waits") == "none" for s in steps]
    if not any(is_beside):
        return costs
    costs = replace(
        costs,
        sync=costs.sync.copy(),
        exchange=costs.exchange.copy(),
        host_exchange=costs.host_exchange.copy(),
    )
    walk = _Beside(costs, code.tolist(), step_of.tolist())
    n_tiles = costs.compute_tiles.shape[1]
    pc = 0
    while pc < len(code):
        group = []
        while pc < len(code) and walk.step_of[pc] >= 0 and is_beside[walk.step_of[pc]]:
            group.append(walk.step_of[pc])
            pc += 1
        if group:
            _hide(costs, group, walk.cycles_after(pc, _tiles_of(group, exchanges, n_tiles)))
        pc += 1
    return costs


def _tiles_of(group: list[int], exchanges: StepExchanges, n_tiles: int) -> Ints:
    """bool[n_tiles]: which take part in the transfers of a group."""
    used = np.zeros(n_tiles, bool)
    for step in group:
        moved = exchanges.of_step(step).before
        if moved is not None:
            used |= (moved.received > 0) | (moved.sent > 0)
    return used


def _hide(costs: StepCosts, group: list[int], budget: int) -> None:
    """Take as much off transfers that run one after another as `budget` cycles hide."""
    for step in group:
        whole = int((costs.sync[step] + costs.exchange[step]).max())
        hidden = min(whole, budget)
        budget -= hidden
        for column in (costs.host_exchange, costs.exchange):
            column[step] = np.maximum(column[step] - hidden, 0)
        of_sync = max(0, hidden - (whole - int(costs.sync[step].max())))
        costs.sync[step] = np.maximum(costs.sync[step] - of_sync, 0)


class _Beside:
    """Walks the steps after a transfer, on a separate clock."""

    def __init__(self, costs: StepCosts, code: list[list[int]], step_of: list[int]):
        self.costs = costs
        self.code = code
        self.step_of = step_of
        self.clock = np.zeros(costs.sync.shape[1], np.int64)
        self.tiles = np.zeros(costs.compute_tiles.shape[1], bool)

    def cycles_after(self, pc: int, tiles: Ints) -> int:
        """From an instruction to the first step that uses `tiles`, within its own program."""
        self.clock[:] = 0
        self.tiles = tiles
        self._run(pc)
        return int(self.clock.max())

    def _run(self, pc: int) -> tuple[int, bool]:
        """Walk to the end of a body: where that is, and whether nothing stopped the walk."""
        while True:
            op, *operands = self.code[pc]
            if self.step_of[pc] >= 0 and not self._advance(self.step_of[pc]):
                return pc, False
            if op in _ENDS:
                return pc, True
            if op in DATA_DECIDES:
                return pc, False
            if op == Opcode.LOOP_BEGIN:
                pc, is_free = self._loop(pc + 1, operands[1], operands[2])
            elif op == Opcode.CALL:
                is_free = self._run(operands[0])[1]
                pc += 1
            else:
                pc, is_free = (operands[0] if op == Opcode.JUMP else pc + 1), True
            if not is_free:
                return pc, False

    def _loop(self, body: int, count: int, after: int) -> tuple[int, bool]:
        """All iterations take as long as the second: by then chips wait for each other alike."""
        end, is_free = after - 1, True
        for done in range(min(count, 2)):
            before = self.clock.copy()
            end, is_free = self._run(body)
            if not is_free:
                return end, False
            if done:
                self.clock += (self.clock - before) * (count - 2)
        return end + 1, is_free

    def _advance(self, step: int) -> bool:
        costs, row = self.costs, self.costs.tile_row[step]
        if (costs.compute_tiles[row] + costs.exchange_tiles[row])[self.tiles].any():
            return False
        cycles = costs.sync[step] + costs.exchange[step] + costs.compute[step]
        if costs.joins[step]:
            self.clock[:] = self.clock.max() + cycles
        else:
            active = costs.is_active[step]
            self.clock[active] += cycles[active]
        return True
