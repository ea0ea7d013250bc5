"""What a walk reads: instructions, costs, and the places at which steps of functions run.

A step in a function runs at several *places*, one for each way to get there. A *context* is a
program, or a function as called from one instruction in one context:

    program ─┬─ call at 7 ──► stage0 (context 1) ─── call at 40 ──► helper (context 3)
    (context 0) call at 9 ──► stage0 (context 2) ─── call at 40 ──► helper (context 4)

Steps of a program or function have consecutive numbers: a place is its context's base + the step.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.program_ir import DATA_DECIDES, Opcode
from tremula.vision.report.timeline import walk as w

Ints = np.ndarray

# With more places, functions share one context for all further calls.
MOST_PLACES = 1 << 18
PIPELINE, _STAGE = "pipeline", re.compile(r"stage(\d+)")


@dataclass(frozen=True, slots=True)
class CallContext:
    """A program, or a function as it is called from one place."""

    region: int
    parent: int  # context, -1 for programs and for functions that share one
    caller: int  # instruction


# What does not depend on costs, in the order of a script's head.
ROUTE_COLUMNS = (
    "code", "step_of", "entries", "is_plain", "call_number", "first_child", "child", "base",
    "stage_of_context", "in_pipeline",
)  # fmt: skip


@dataclass(frozen=True)
class Routes:
    """Instructions and contexts: what a file keeps.

    Columns: code int64[n, 6]; step_of; entries[n_programs]; is_plain[n], of a LOOP_BEGIN, that data
    decides nothing in it; call_number[n], of a CALL, its number among those of its region;
    first_child[n_contexts], of `child` (contexts), that of the context's first call; base, place
    less step; stage_of_context, -1 for none; in_pipeline[n_steps].
    """

    columns: Mapping[str, Ints]
    n_slots: int  # of loops
    n_stages: int
    n_places: int
    first_place: Ints  # int64[n_steps]: the first of each step's places
    step_of_place: Ints  # int64[n_places]

    def script(self, phases: Ints, joins: Ints, takes_part: Ints, is_counted: Ints) -> Ints:
        """With costs: one column of int64, for compiled code.

        `phases` int64[n_steps, n_chips, 5] are those of one execution; compute of steps that are
        counted is left out, for it was recorded.
        """
        cycles = phases.sum(axis=2)
        cycles[is_counted] -= phases[is_counted, :, 0]
        columns = [*self.columns.values(), cycles, is_counted, joins, takes_part]
        flat = [np.ravel(column).astype(np.int64) for column in columns]
        ends = np.cumsum([w.N_HEAD, *map(len, flat)])
        n_chips = phases.shape[1]
        sizes = (2 * w.MOST_CALLS, 2 * self.n_slots, n_chips, self.n_stages)
        states = np.cumsum([w.N_WORDS, *sizes, w.MOST_FOLDS * (1 + n_chips)])
        n_code = len(self.columns["code"])
        head = [n_chips, self.n_stages, n_code, *ends[:-1].tolist(), *states.tolist()]
        assert len(head) == w.N_HEAD, "walk.py names every word"
        return np.concatenate([np.array(head, np.int64), *flat])


def routes_of(executable: Executable) -> tuple[Routes, "Regions", list[CallContext]]:
    """Contexts of an executable, found by following its calls."""
    regions = Regions(executable)
    contexts, columns, n_places = _contexts(regions, len(executable.entries))
    stages = _stages(executable, regions, contexts)
    code, costs = executable.code, executable.analysis.costs
    result = {
        "code": np.array(code, np.int64, order="C"),
        "step_of": np.array(executable.step_of, np.int64),
        "entries": np.array(executable.entries, np.int64),
        "is_plain": _plain_loops(executable, costs),
        "call_number": regions.call_number,
        **columns,
        "stage_of_context": stages,
        "in_pipeline": np.array([PIPELINE in s.path for s in executable.steps], bool),
    }
    slots = code[code[:, 0] == Opcode.LOOP_BEGIN, 1]
    n_slots = int(slots.max(initial=-1)) + 1
    n_stages = int(stages.max(initial=-1)) + 1
    assert tuple(result) == ROUTE_COLUMNS, "a script's columns are in this order"
    first_place = np.zeros(len(executable.steps), np.int64)
    step_of_place = np.zeros(n_places, np.int64)
    for context, base in reversed(list(zip(contexts, result["base"].tolist(), strict=True))):
        steps = np.arange(*regions.steps[context.region])
        first_place[steps] = base + steps
        step_of_place[base + steps] = steps
    routes = Routes(result, n_slots, n_stages, n_places, first_place, step_of_place)
    return routes, regions, contexts


class Regions:
    """Programs, then functions in the order of their first call: ranges of instructions."""

    def __init__(self, executable: Executable):
        code, step_of = executable.code, executable.step_of
        is_call = code[:, 0] == Opcode.CALL
        self.entries = [*executable.entries, *dict.fromkeys(code[is_call, 1].tolist())]
        ends = np.flatnonzero(np.isin(code[:, 0], (Opcode.END, Opcode.RETURN)))
        self.ends = ends[np.searchsorted(ends, self.entries)].tolist()
        self.number_of = {entry: number for number, entry in enumerate(self.entries)}
        self.calls: list[list[tuple[int, int]]] = []  # (instruction, region) of each region
        self.call_number = np.zeros(len(code), np.int64)
        self.steps: list[tuple[int, int]] = []  # first and last + 1
        for entry, end in zip(self.entries, self.ends, strict=True):
            at = entry + np.flatnonzero(is_call[entry:end])
            self.call_number[at] = np.arange(len(at))
            self.calls.append([(i, self.number_of[int(code[i, 1])]) for i in at.tolist()])
            steps = step_of[entry:end]
            steps = steps[steps >= 0]
            self.steps.append((int(steps[0]), int(steps[-1]) + 1) if len(steps) else (0, 0))


def _contexts(regions: Regions, n_programs: int) -> tuple[list[CallContext], dict[str, Ints], int]:
    """All contexts in order of discovery; columns first_child, child and base."""
    contexts = [CallContext(region, -1, -1) for region in range(n_programs)]
    shared: dict[int, int] = {}
    first_child, child, base, n_places = [], [], [], 0
    number = 0
    while number < len(contexts):
        first, last = regions.steps[contexts[number].region]
        base.append(n_places - first)
        n_places += last - first
        first_child.append(len(child))
        for caller, region in regions.calls[contexts[number].region]:
            is_own = n_places + len(contexts) < MOST_PLACES
            if is_own or region not in shared:
                parent = (number, caller) if is_own else (-1, -1)
                contexts.append(CallContext(region, *parent))
            result = len(contexts) - 1 if is_own else shared.setdefault(region, len(contexts) - 1)
            child.append(result)
        number += 1
    columns = {
        name: np.array(values, np.int64)
        for name, values in (("first_child", first_child), ("child", child), ("base", base))
    }
    return contexts, columns, n_places


def _plain_loops(executable: Executable, costs: StepCosts) -> Ints:
    """bool[n]: loops in which neither branches nor counted steps depend on data, calls included."""
    code, step_of = executable.code, executable.step_of
    decides = np.isin(code[:, 0], DATA_DECIDES)
    decides |= np.append(costs.needs_count, False)[step_of]
    decides = decides.tolist()
    ops, targets = code[:, 0].tolist(), code[:, 1].tolist()
    known: dict[int, bool] = {}

    def is_plain(first: int, last: int) -> bool:
        return all(
            not decides[i] and (ops[i] != Opcode.CALL or callee_is_plain(targets[i]))
            for i in range(first, last)
        )

    def callee_is_plain(entry: int) -> bool:
        if entry not in known:
            last = entry
            while ops[last] != Opcode.RETURN:
                last += 1
            known[entry] = is_plain(entry, last)
        return known[entry]

    result = np.zeros(len(code), bool)
    for begin in np.flatnonzero(code[:, 0] == Opcode.LOOP_BEGIN).tolist():
        result[begin] = is_plain(begin + 1, int(code[begin, 3]))
    return result


def _stages(executable: Executable, regions: Regions, contexts: Sequence[CallContext]) -> Ints:
    """int64[n_contexts]: functions `stage0`, `stage1`, … of a program with a sequence `pipeline`.

    What a stage calls belongs to it, too.
    """
    result = np.full(len(contexts), -1, np.int64)
    paths = [step.path for step in executable.steps]
    if not any(PIPELINE in path for path in paths):
        return result
    of_region = []
    for number, (first, last) in enumerate(regions.steps):
        is_function = number >= len(executable.entries) and last > first
        name = _STAGE.fullmatch(paths[first][0]) if is_function and paths[first] else None
        of_region.append(-1 if name is None else int(name[1]))
    for number, context in enumerate(contexts):
        above = result[context.parent] if context.parent >= 0 else -1
        result[number] = above if above >= 0 else of_region[context.region]
    return result
