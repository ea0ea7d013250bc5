"""What each operation of a codelet costs in worker slots: the one table of weights, with sources.

The model. A worker issues one bundle per slot: one instruction of the main pipeline (control,
integers, loads and stores) beside one of the aux pipeline (floats). Operations between two changes
of control flow can be bundled freely, so such a block costs max(main, aux). The supervisor has no
bundles: it costs main + aux. Elements are handled one by one, as a C++ compiler for tiles does:
vector instructions are what a hand-written `cycles` method is for. Measured plain C++ agrees: one
fp32 load per slot and no visible loop or add (Jia et al. table 3.1: 7.59 TB/s on GC2).
"""

from dataclasses import dataclass

ISA = "public instruction set: one slot per instruction, two pipelines"
POPLIBS = "PopLibs cycle estimators, per element less its load and store"


# Code size. One instruction may take several slots. What takes many is a routine: a tile has it
# once, each use is a call, and its loops make it shorter than its time. Placeholders: from how many
# slots on it is a routine, the instructions of a call (operand, call, result), the longest routine.
ROUTINE_SLOTS = 16
CALL_INSTRUCTIONS = 3
MOST_ROUTINE_INSTRUCTIONS = 64


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots on the two pipelines, and the code that takes them."""

    main: int = 0
    aux: int = 0
    n_saved: int = 0  # slots beyond one per instruction
    routines: frozenset[str] = frozenset()  # called

    def __add__(self, other: "Slots") -> "Slots":
        return Slots(
            self.main + other.main, self.aux + other.aux, self.n_saved + other.n_saved,
            self.routines | other.routines,
        )  # fmt: skip

    def cycles(self, is_supervisor: bool = False) -> int:
        return self.main + self.aux if is_supervisor else max(self.main, self.aux)

    @property
    def n_instructions(self) -> int:
        return self.main + self.aux - self.n_saved


def routine(name: str, *, main: int = 0, aux: int = 0) -> Slots:
    """A call of a routine that takes this many slots."""
    n_slots = main + aux
    _routine_slots[name] = n_slots
    return Slots(main, aux, n_slots - CALL_INSTRUCTIONS, frozenset({name}))


_routine_slots: dict[str, int] = {}


def n_routine_instructions(name: str) -> int:
    return min(_routine_slots[name], MOST_ROUTINE_INSTRUCTIONS)


NOTHING = Slots()
LOAD = STORE = BRANCH = INTEGER = Slots(main=1)  # ISA
SUBWORD_STORE = Slots(main=3)  # ISA: stores are 32 or 64 bits, so load, merge, store
FLOAT = Slots(aux=1)  # ISA: add, sub, mul, min, max, abs, neg, compare
COMPARE_TO_MAIN = Slots(main=1)  # ISA: the result of a float comparison moves to a main register
CONVERT_INTEGER = Slots(main=1, aux=1)  # ISA: a move between register files and a conversion
CONVERT_HALF = Slots(aux=1)  # ISA
SELECT = Slots(main=1)
LOOP_SETUP = Slots(main=2)  # ISA: the count and the `rpt`, or the counter and its test
LOOP_ITERATION = Slots(main=1)  # ISA: decrement and branch in one; nothing under `rpt`
INTEGER_DIVIDE = routine(
    "integer_divide", main=270
)  # POPLIBS: 277 per element, 7 of them load, store and loop
INTEGER_REMAINDER = routine("integer_remainder", main=285)  # POPLIBS: 292
SHIFT_DIVIDE = Slots(main=2)  # by a power of two

# Float functions: slots on aux for fp32 and for half. POPLIBS and the multi-slot instructions that
# the public estimators name: fp32 div 3, exp 3, log 6, tanh 5; half exp and log 2 per pair.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "div": (3, 5), "exp": (3, 2), "expm1": (4, 3), "log": (6, 2), "log1p": (7, 3), "log2": (7, 3),
    "log10": (7, 3), "sqrt": (5, 6), "tanh": (5, 1), "sin": (2300, 25), "cos": (2300, 25),
    "tan": (5100, 50), "asin": (272, 144), "acos": (272, 144), "atan": (136, 144),
    "atan2": (136, 144), "sinh": (9, 7), "cosh": (9, 7), "erf": (41, 13), "pow": (312, 325),
    "fmod": (66, 75), "mod": (66, 75), "floordiv": (4, 6), "hypot": (8, 9), "floor": (1, 1),
    "ceil": (1, 1), "trunc": (1, 1), "rint": (1, 1), "round": (1, 1), "copysign": (1, 1),
    "isnan": (1, 1), "isinf": (1, 1), "isfinite": (1, 1), "degrees": (1, 1), "radians": (1, 1),
}  # fmt: skip
SINGLE_INSTRUCTIONS = frozenset("div exp log sqrt tanh".split())  # ISA, for fp32

# Random numbers. ISA: 64 bits per instruction of the aux pipeline, normal numbers in pairs; a float
# of [0, 1) is bits, an exponent put in, and 1 taken off. A state is two control registers a word.
RANDOM: dict[str, Slots] = {
    "random_uint32": Slots(main=1, aux=1), "random_uint64": Slots(main=1, aux=1),
    "random_uniform": Slots(aux=3), "random_normal": Slots(aux=1),
    "random_state": Slots(main=2), "set_random_state": Slots(main=2),
    "seed_random": routine("seed_random", main=40),
}  # fmt: skip

# Entry, fetching field pointers and exit. Source: the fixed part of PopLibs' estimate of a fused
# elementwise codelet, 13 slots.
VERTEX_OVERHEAD_SLOTS = 13
# Supervisor cycles to start the workers and wait for them: PopLibs' common multi-worker launch.
LAUNCH_CYCLES = 11
SUPERVISOR_BRANCH = Slots(main=6)  # PopLibs charges 6 cycles for a taken supervisor branch

# Unpacking a field's pointer and length, by layout. Source: PopLibs estimators.
LAYOUT_SLOTS = {
    "SPAN": 0, "ONE_PTR": 0, "SHORT_SPAN": 2, "SCALED_PTR32": 2, "SCALED_PTR64": 1,
    "SCALED_PTR128": 1, "COMPACT_PTR": 2, "DELTAN": 2, "COMPACT_DELTAN": 2, "DELTANELEMENTS": 5,
}  # fmt: skip
