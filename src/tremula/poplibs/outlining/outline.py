"""Outlining: steps of a program that repeat with other variables become calls of one function.

The layers of a network are planned once and built again over other variables (poputil/replay.py).
What they repeat is found here, in the order of the program, whatever it came from:

    steps      … matmul(x0, w0, y0) gelu(y0, x1)   matmul(x1, w1, y1) gelu(y1, x2)   …
    becomes    body: matmul(x, w, y) gelu(y, z)
               … copy x0 w0 to x w, call, copy z to x1;   copy x1 w1 to x w, call, copy z to x2   …

Arguments are laid out as what they stand for, so copies stay on their tiles. A variable that all
repetitions share is used as it is; one that only the body knows needs no copies.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.programs import (
    Call,
    Copy,
    Execute,
    Function,
    Program,
    Repeat,
    Sequence,
    with_parts,
)
from tremula.poplar.tensors.layout import moved_pieces
from tremula.poplar.tensors.tensor import Tensor, concat, variable_tensor
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.outlining.repeats import repeats
from tremula.poplibs.outlining.steps import OutlinedKind, OutlinedStep, Steps, variables_in

KIB = 1024
# What a call copies, of the elements that its body touches: more is not worth the memory.
MOST_COPIED = 0.5
_COPY_BYTES = 12  # the description of a copy within a tile


@dataclass(slots=True)
class Outlined:
    """What was found: functions, their calls, and about how much memory of a tile they save."""

    n_functions: int = 0
    n_calls: int = 0
    n_bytes_saved: float = 0.0


def outlined(
    graph: Graph, program: Program, threshold: float = 1.0, most_copied: float = MOST_COPIED
) -> tuple[Program, Outlined]:
    """The program with repeated steps as functions, where one saves `threshold` KiB of a tile.

    A call copies at most `most_copied` of the elements that its body touches.
    """
    work = _Outliner(graph, program, threshold * KIB, most_copied)
    result = work.rewritten(program)
    work.share()
    return result, work.outlined


@dataclass(frozen=True, slots=True)
class _Roles:
    """The variables of a body by what calls must do for them; each a place in `variables`."""

    variables: np.ndarray  # int64[n_repetitions, n_variables]
    is_argument: np.ndarray  # bool[n_variables]
    goes_in: np.ndarray
    comes_out: np.ndarray


class _Outliner:
    def __init__(self, graph: Graph, program: Program, least_bytes: float, most_copied: float):
        self.graph, self.state = graph, graph.state
        self.least_bytes, self.most_copied = least_bytes, most_copied
        self.steps = Steps(graph)
        self.outlined = Outlined()
        self.done: dict[int, Program] = {}
        self.functions: dict[int, Function] = {}  # those of the program, rewritten
        self.waiting: list[tuple[Sequence, list[Program]]] = []  # sequences to fill, and with what
        self.users: dict[int, set[int]] = {}  # of each variable: ids of steps
        self.external = self._external()
        self.n_places = _places_of_sequences(program)
        for step in _leaves(program, set()):
            for variable in variables_in(step, self.state.variables):
                self.users.setdefault(variable, set()).add(id(step))

    def _external(self) -> set[int]:
        """Variables that the host or the start of a program knows."""
        handles = self.state.handles
        tensors = [*handles.reads.values(), *handles.writes.values()]
        tensors += [tensor for tensor, _ in self.state.initial_parts]
        return {v for tensor in tensors for v in tensor.variable_ids()}

    def rewritten(self, program: Program) -> Program:
        """A program, or part of one, as a copy whose sequences `share` fills.

        Parts that appear twice are rewritten once.
        """
        if id(program) not in self.done:
            self.done[id(program)] = self._rewritten(program)
        return self.done[id(program)]

    def _rewritten(self, program: Program) -> Program:
        if isinstance(program, Repeat):
            return with_parts(program, body=self.rewritten(program.body))
        if isinstance(program, Call) and isinstance(program.function, Function):
            return with_parts(program, function=self._function(program.function))
        if not isinstance(program, Sequence):
            return program
        new = with_parts(program, steps=[])
        self.waiting.append((new, [self._part(step) for step in self._flat(program)]))
        return new

    def share(self) -> None:
        """Fill sequences with calls of functions; those that have steps in common share them."""
        steps = iter(self.steps.of([part for _, parts in self.waiting for part in parts]))
        filled = [(new, [next(steps) for _ in parts]) for new, parts in self.waiting]
        for group in _groups([steps for _, steps in filled]):
            # Before each sequence a mark, which is like nothing else.
            marks = [OutlinedStep(filled[i][0], None, ()) for i in group]
            lists = zip(marks, group, strict=True)
            joined = [step for mark, i in lists for step in (mark, *filled[i][1])]
            while (better := self._with_calls(joined)) is not None:
                joined = better
            begins = [at for at, step in enumerate(joined) if any(step is m for m in marks)]
            for mark, (begin, end) in zip(marks, pairwise([*begins, len(joined)]), strict=True):
                assert isinstance(mark.program, Sequence), "marks stand for sequences"
                mark.program.steps.extend(step.program for step in joined[begin + 1 : end])

    def _function(self, function: Function) -> Function:
        """A function with its program rewritten, once for all of its calls."""
        if id(function) not in self.functions:
            body = self.rewritten(function.program)
            self.functions[id(function)] = self.graph.add_function(body, function.name)
        return self.functions[id(function)]

    def _flat(self, program: Sequence) -> Iterator[Program]:
        """Its steps, with those of nameless sequences that are nowhere else."""
        for step in program.steps:
            if isinstance(step, Sequence) and not step.name and self.n_places[id(step)] == 1:
                yield from self._flat(step)
            else:
                yield step

    def _part(self, program: Program) -> Program:
        return self.rewritten(program) if isinstance(program, Sequence | Repeat | Call) else program

    def _with_calls(self, steps: list[OutlinedStep]) -> list[OutlinedStep] | None:
        """The steps with the best repetition as calls; None if none is worth it."""
        numbers = [-place - 1 if s.kind is None else s.kind.number for place, s in enumerate(steps)]
        code = _sums(0.0 if s.kind is None else s.kind.n_code_bytes for s in steps)
        spare = _sums(self._spare_elems(steps))
        candidates = []

        def may_save(length: int, place: int, n: int) -> bool:
            """Whether n copies save enough; a byte less, as sums of floats are not exact."""
            return (n - 1) * (code[place + length] - code[place]) >= self.least_bytes - 1

        for length, places in repeats(numbers, may_save):
            saved = (len(places) - 1) * (code[places[0] + length] - code[places[0]])
            # An update of weights saves code, too, but would copy all that it changes.
            if saved >= self.least_bytes and any(spare[p + length] >= spare[p] for p in places):
                candidates.append((saved, length, places))
        for _, length, places in sorted(candidates, reverse=True):
            parts = [steps[place : place + length] for place in places]
            chosen = _alike(parts)
            if len(chosen) > 1 and (calls := self._calls([parts[i] for i in chosen])) is not None:
                return _replaced(steps, [places[i] for i in chosen], length, calls)
        return None

    def _spare_elems(self, steps: list[OutlinedStep]) -> Iterator[float]:
        """Of each step: elements that a call may copy for it, less those that it surely copies.

        That is what it changes of weights and states, if nothing else writes them.
        """
        n_writers = Counter(v for step in steps for v in _written(step) if v in self.external)
        for step in steps:
            if step.kind is None:
                yield 0.0
                continue
            uses = step.kind.uses
            n_copied = sum(
                self.state.variables.n_elems(v) * (1 + uses[slot])
                for slot, v in enumerate(step.variables)
                if step.kind.writes[slot] and n_writers[v] == 1
            )
            yield self.most_copied * step.kind.n_elems - n_copied

    def _calls(self, parts: list[list[OutlinedStep]]) -> list[list[OutlinedStep]] | None:
        """The calls that take the place of repetitions, or None if they copy too much."""
        roles = self._roles(parts)
        if not self._is_worth_it(parts, roles):
            return None
        argument_of = self._arguments(roles)
        body = _Exchanged(self.graph, argument_of)
        program = Sequence([body.program(step.program) for step in parts[0]])
        function = self.graph.add_function(program, f"outlined/{_name(parts[0][0].program)}")
        self.outlined.n_functions += 1
        self.outlined.n_calls += len(parts)
        return list(self._call(function, roles, argument_of))

    def _roles(self, parts: list[list[OutlinedStep]]) -> _Roles:
        rows = [[v for step in part for v in step.variables] for part in parts]
        _, first = np.unique(rows[0], return_index=True)
        variables = np.array(rows, np.int64)[:, np.sort(first)]
        place = {int(v): i for i, v in enumerate(variables[0])}
        used, written = (np.zeros(len(place), bool) for _ in range(2))
        for step in parts[0]:
            kind = _kind_of(step)
            for slot, variable in enumerate(step.variables):
                at = place[variable]
                used[at] |= kind.uses[slot] and not written[at]
            for slot, variable in enumerate(step.variables):
                written[place[variable]] |= kind.writes[slot]
        is_shared = (variables == variables[0]).all(0)
        own = [{id(step.program) for step in part} for part in parts]
        is_outside = np.array([
            any(v in self.external or self.users[v] - own[i] for i, v in enumerate(column))
            for column in variables.T.tolist()
        ])  # fmt: skip
        comes_out = written & (is_outside | used) & ~is_shared
        goes_in = used & ~is_shared
        return _Roles(variables, goes_in | comes_out, goes_in, comes_out)

    def _is_worth_it(self, parts: list[list[OutlinedStep]], roles: _Roles) -> bool:
        elems = np.array([self.state.variables.n_elems(v) for v in roles.variables[0].tolist()])
        n_copied = int(elems @ (roles.goes_in.astype(int) + roles.comes_out))
        n_touched = sum(_kind_of(step).n_elems for step in parts[0])
        code = sum(_kind_of(step).n_code_bytes for step in parts[0])
        # Arguments are live around a call alone, while code is there for good.
        spent = _COPY_BYTES * len(parts) * int(roles.goes_in.sum() + roles.comes_out.sum())
        saved = (len(parts) - 1) * code - spent
        if n_copied > self.most_copied * n_touched or saved < self.least_bytes:
            return False
        self.outlined.n_bytes_saved += saved
        return True

    def _arguments(self, roles: _Roles) -> dict[int, int]:
        """A new variable for each argument: laid out like the first repetition's own."""
        result = {}
        table, tile_map = self.state.variables, self.state.tile_map
        for variable in roles.variables[0][roles.is_argument].tolist():
            type, shape = table.types[variable], table.shapes[variable]
            begin, end, tile = self.steps.layouts.tile_map_of(variable, variable)
            name, source = f"outlined/{table.names[variable]}", table.sources[variable]
            new = result[variable] = table.add(name, type, shape, source, False)
            shift = table.base_bytes[new] - table.base_bytes[variable]
            tile_map.add_many(begin + shift, end + shift, tile)
        return result

    def _call(
        self, function: Function, roles: _Roles, argument_of: dict[int, int]
    ) -> Iterator[list[OutlinedStep]]:
        """Of each repetition: copies to the arguments, a call, copies of the results."""
        first: list[int] = roles.variables[0].tolist()
        arguments = [argument_of.get(v, v) for v in first]
        into = [(first[i], arguments[i]) for i in np.flatnonzero(roles.goes_in).tolist()]
        back = [(arguments[i], first[i]) for i in np.flatnonzero(roles.comes_out).tolist()]
        before = list(self._copies(into, "outlined/arguments"))
        after = list(self._copies(back, "outlined/results"))
        for number, own in enumerate(roles.variables.tolist()):
            sides = before, after
            if number:
                other = _Exchanged(self.graph, dict(zip(first, own, strict=True)))
                sides = (map(other.program, copies) for copies in sides)
            into_call, from_call = sides
            call = (*into_call, Call(function), *from_call)
            yield [OutlinedStep(program, None, ()) for program in call]

    def _copies(self, pairs: list[tuple[int, int]], name: str) -> Iterator[Copy]:
        """Variables to variables, all of one type at once."""
        table = self.state.variables
        for type in dict.fromkeys(table.types[source] for source, _ in pairs):
            same = [pair for pair in pairs if table.types[pair[0]] is type]
            sides = zip(*same, strict=True)
            source, target = (
                concat([variable_tensor(table, v).flatten() for v in side]) for side in sides
            )
            yield Copy(source, target, name=name)


@dataclass(frozen=True, slots=True)
class _Exchanged:
    """Copies steps with some variables exchanged."""

    graph: Graph
    ids: dict[int, int]
    sets: dict[int, ComputeSet] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        if isinstance(program, Execute):
            return with_parts(program, compute_set=self._set(program.compute_set))
        assert isinstance(program, Copy), "only these are of a kind"
        return with_parts(
            program,
            source_of_data=self._tensor(program.source_of_data),  # pyright: ignore[reportArgumentType]
            destination=self._tensor(program.destination),  # pyright: ignore[reportArgumentType]
            repeats=program.repeats or program,
        )

    def _set(self, old: ComputeSet) -> ComputeSet:
        if id(old) not in self.sets:
            of = old.instance
            assert of is not None, "sets of a kind have a template"
            variables = tuple(self.ids.get(v, v) for v in of.variables)
            new = ComputeSet(old.name, old.source, replace(of, variables=variables))
            self.graph.state.compute_sets.append(new)
            self.sets[id(old)] = new
        return self.sets[id(old)]

    def _tensor(self, tensor: Tensor) -> Tensor:
        table, n_bytes, offset = tensor.variables, tensor.type.n_bytes, tensor.offset
        pieces = tensor.pieces
        if pieces is None:
            variable = table.id_at(offset * n_bytes)
            base = table.base_bytes
            offset += (base[self.ids.get(variable, variable)] - base[variable]) // n_bytes
        else:
            pieces = moved_pieces(pieces, n_bytes, table, self.ids)
        return Tensor(table, tensor.type, offset, tensor.shape, tensor.strides, pieces)


def _groups(lists: list[list[OutlinedStep]]) -> list[list[int]]:
    """Numbers of lists, together if they have kinds of steps in common, directly or by others."""
    group_of_kind: dict[int, list[int]] = {}
    group_of = [[number] for number in range(len(lists))]
    for number, steps in enumerate(lists):
        for kind in {step.kind.number for step in steps if step.kind is not None}:
            other, mine = group_of_kind.setdefault(kind, group_of[number]), group_of[number]
            if other is not mine:
                other += mine
                for member in mine:
                    group_of[member] = other
                group_of_kind.update({k: other for k, g in group_of_kind.items() if g is mine})
    return [sorted(group) for number, group in enumerate(group_of) if group[0] == number]


def _alike(parts: list[list[OutlinedStep]]) -> list[int]:
    """The largest group of repetitions whose variables repeat in the same way, by number."""
    groups: dict[bytes, list[int]] = {}
    for number, part in enumerate(parts):
        variables = [v for step in part for v in step.variables]
        _, first, inverse = np.unique(variables, return_index=True, return_inverse=True)
        groups.setdefault(first[inverse].tobytes(), []).append(number)
    return max(groups.values(), key=len)


def _replaced(
    steps: list[OutlinedStep], places: list[int], length: int, calls: list[list[OutlinedStep]]
) -> list[OutlinedStep]:
    result, at = [], 0
    for place, call in zip(places, calls, strict=True):
        result += [*steps[at:place], *call]
        at = place + length
    return [*result, *steps[at:]]


def _written(step: OutlinedStep) -> Iterator[int]:
    """Variables that a step of a kind writes."""
    writes = step.kind.writes if step.kind is not None else ()
    return (v for v, is_written in zip(step.variables, writes, strict=False) if is_written)


def _sums(values: Iterable[float]) -> list[float]:
    """Of all values before each, and of all."""
    return np.cumsum([0.0, *values]).tolist()


def _kind_of(step: OutlinedStep) -> OutlinedKind:
    assert step.kind is not None, "steps that repeat have a kind"
    return step.kind


def _leaves(program: Program, seen: set[int]) -> Iterator[Program]:
    """Steps that are no sequences, loops or calls, each once."""
    if id(program) in seen:
        return
    seen.add(id(program))
    inside = _inside(program)
    if inside is None:
        yield program
    for step in inside or ():
        yield from _leaves(step, seen)


def _inside(program: Program) -> SequenceOf[Program] | None:
    """The parts of a sequence, a loop or a called function; None if it is something else."""
    if isinstance(program, Sequence):
        return program.steps
    if isinstance(program, Repeat):
        return (program.body,)
    if isinstance(program, Call) and isinstance(program.function, Function):
        return (program.function.program,)
    return None


def _places_of_sequences(program: Program) -> Counter[int]:
    """How often each sequence is part of another, of a loop or of a function, by its id."""
    result: Counter[int] = Counter()
    waiting = [program]
    while waiting:
        for step in _inside(waiting.pop()) or ():
            result[id(step)] += 1
            if result[id(step)] == 1:
                waiting.append(step)
    return result


def _name(program: Program) -> str:
    return program.compute_set.name if isinstance(program, Execute) else program.name or "Copy"
