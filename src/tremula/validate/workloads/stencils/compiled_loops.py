"""Slots of loops over expressions as a compiler for tiles makes them of C++.

Codelets of users are plain C++. A listing that the authors of a heat equation published with their
program (simehaa/IPU, HeatEquation3D/codelets.S) shows what the compiler makes of such loops: a slot
for each load and store, members of the vertex loaded in each turn (a store of a float could change
them), eight registers for floats, so that an expression is evaluated operand by operand.

Where a listing exists its slots are counted. Elsewhere every instruction takes a slot: an
expression of nine and more operands leaves hardly a load and an operation to issue together.
"""

from dataclasses import dataclass

# Of the listing: a counter and a branch; index and shift of a row that a turn begins to read; what
# a pointer to a row of a list takes: reload, index, shift, load, offset.
LOOP_SLOTS = 2
INDEX_SLOTS = 2
ROW_POINTER_SLOTS = 5
N_POINTER_REGISTERS = 8  # of the main file, beside counter, stack, members and temporaries
DIVISION_SLOTS = 3  # of floats, by PopLibs' table


@dataclass(frozen=True, slots=True)
class GridExpression:
    """What one evaluation takes."""

    n_loads: int
    n_operations: int  # floats or short vectors of them
    n_members: int = 0  # of the vertex, loaded each time
    n_divisions: int = 0
    n_pointers: int = 0  # to rows of lists, that of the result included

    @property
    def slots(self) -> int:
        """With a store; pointers that no register is left for are loaded each time."""
        n_reloads = max(0, self.n_pointers - N_POINTER_REGISTERS)
        n_moves = self.n_loads + self.n_members + n_reloads + 1
        return n_moves + self.n_operations + DIVISION_SLOTS * self.n_divisions
