"""Replay: an operation that was built before is built again by copying what it made.

Networks repeat layers, and planning a layer is slow. An operation looks at the layouts of its
operands, never at their addresses, so a second call whose operands are laid out like the first
call's would add the same variables, vertices and programs, over other variables. `@replayed`
records what the first call adds, and from then on adds that again with the variables exchanged:

    y = add(graph, a, b, sequence, "one")       recorded
        key   add, layout of operand 0, layout of operand 1
        tape  operands                v0, v1
              new     variables       v2 "one/out", and its tile map
              sets    compute sets    "one": a template over (v0, v1, v2)
              steps   programs        Execute("one")
              result                  the tensor v2

    z = add(graph, y, c, sequence, "two")       same key: played
        ids   v0 -> v2, v1 -> v3, v2 -> v4 (a new variable "two/out", mapped like v2)
        adds  a compute set "two": the same template over (v2, v3, v4), and Execute("two")
        gives the tensor v4

The steps are: `_call_of` makes the key (layout_key.py); `_Mark` remembers how long the graph's
lists were before the call, and afterwards takes what was added as a `_Tape`; `_Tape.play` adds that
again; `_Replacement` copies tensors and programs of the tape with their variables exchanged. A call
that does more than a tape holds (streams, host handles, quarter types, results of unknown classes)
has None for a tape, and is built again each time.

A compute set of a tape becomes a template of which the recorded set and every played one are
instances: the compiler then plans it once, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from tremula.base.source import Source, user_source
from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.graph_state import GraphState
from tremula.poplar.programs import Copy, Program, Sequence, with_parts
from tremula.poplar.tensors.layout import moved_pieces
from tremula.poplar.tensors.runs import Pieces
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet, TemplateInstance
from tremula.poplar.vertices.template import ComputeSetTemplate, template_of
from tremula.poplibs.poputil.layout_key import (
    CallKey,
    NotReplayable,
    TileMapDigests,
    key_of_graph,
)

P = ParamSpec("P")
R = TypeVar("R")
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic, np.ndarray, Enum, Type, Source)


def replayed(function: Callable[P, R]) -> Callable[P, R]:
    """Let an operation be recorded and replayed.

    What it builds must depend only on its arguments and the layouts of its tensors. It may only add
    to the graph, and to the end of `sequence` if it takes one.
    """
    parameters = signature(function).parameters.values()
    names = tuple(p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD)
    has_options = len(names) < len(parameters)
    makes_programs = "sequence" in names

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = _named(names, args, kwargs, has_options=has_options)
            call = _call_of(function, arguments, makes_programs)
        except NotReplayable:  # a wrong call raises its own error
            return function(*args, **kwargs)
        tape = call.recorder.tapes.get(call.key)
        if tape is not None:
            return cast("R", tape.play(call))
        if call.key in call.recorder.tapes:
            return function(*args, **kwargs)
        mark = _Mark.now(call)
        result = function(*args, **kwargs)
        call.recorder.tapes[call.key] = mark.tape(call, result)
        return result

    return wrapper


def _named(
    names: tuple[str, ...], args: tuple, kwargs: Mapping[str, Any], *, has_options: bool
) -> dict[str, Any]:
    """Arguments of a call by name, in the order of the parameters; options after them by name."""
    result = dict(zip(names, args, strict=False))
    if len(args) > len(names) or not result.keys().isdisjoint(kwargs):
        raise NotReplayable
    result.update((name, kwargs[name]) for name in names if name in kwargs)
    if has_options:
        result.update((name, kwargs[name]) for name in sorted(kwargs.keys() - set(names)))
    if len(result) != len(args) + len(kwargs):  # one has a name that is no parameter's
        raise NotReplayable
    return result


class _ReplayRecorder:
    """The tapes of one graph, by key; None for a call that cannot be replayed."""

    def __init__(self, state: GraphState):
        self.layouts = TileMapDigests(state)
        self.tapes: dict[object, _Tape | None] = {}


_RECORDERS: WeakKeyDictionary[GraphState, _ReplayRecorder] = WeakKeyDictionary()


def _recorder_of(state: GraphState) -> _ReplayRecorder:
    recorder = _RECORDERS.get(state)
    if recorder is None:
        recorder = _RECORDERS[state] = _ReplayRecorder(state)
    return recorder


def layouts_of(graph: Graph) -> TileMapDigests:
    """What is known of the layouts of a graph's variables."""
    return _recorder_of(graph.state).layouts


def tiles_of_variable(graph: Graph, variable: int) -> bytes:
    """A digest of the tiles that hold a variable's elements: equal for equal ones of one graph."""
    return layouts_of(graph).in_elements(variable)


_NO_SEQUENCE = Sequence()  # stands in where an operation takes none


@dataclass(frozen=True, slots=True)
class _ReplayedCall:
    recorder: _ReplayRecorder
    state: GraphState
    sequence: Sequence
    name: str
    key: object
    variables: tuple[int, ...]  # those of the operands, in the order they are met


def _call_of(function: Callable, record: Mapping[str, Any], makes_programs: bool) -> _ReplayedCall:
    graph, sequence = (
        record.get("graph"),
        record.get("sequence") if makes_programs else _NO_SEQUENCE,
    )
    if not isinstance(graph, Graph) or not isinstance(sequence, Sequence):
        raise NotReplayable
    state = graph.state
    recorder = _recorder_of(state)
    name = record.get("name") or ""
    key = CallKey(recorder.layouts)
    others = ((k, key.of(v)) for k, v in record.items() if k not in ("graph", "sequence", "name"))
    whole = (function, key_of_graph(graph), bool(name), *others)
    return _ReplayedCall(
        recorder, state, sequence, str(name), (whole, key.of_variables()), tuple(key.numbers)
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """How much there was of everything before a call."""

    n_variables: int
    n_sets: int
    n_initial: int
    n_steps: int
    others: tuple[object, ...]

    @staticmethod
    def now(call: _ReplayedCall) -> "_Mark":
        state = call.state
        return _Mark(
            len(state.variables), len(state.compute_sets), len(state.initial_parts),
            len(call.sequence.steps), _others(call),
        )  # fmt: skip

    def tape(self, call: _ReplayedCall, result: object) -> "_Tape | None":
        """What was added since; None if it is more than a tape can hold."""
        if _others(call) != self.others:
            return None
        state = call.state
        variables = state.variables
        new = range(self.n_variables, len(variables))
        if any(variables.types[v] is QUARTER for v in new):
            return None
        sets = state.compute_sets[self.n_sets :]
        for compute_set in sets:
            if compute_set.instance is None:
                template = template_of(compute_set.frozen_tables(), variables)
                compute_set.use_template(TemplateInstance(template, template.variables, variables))
        columns = call.recorder.layouts.tile_map_of(new[0], new[-1]) if new else _NO_MAP
        columns = tuple(column.copy() for column in columns)  # a view keeps the whole map as it was
        steps = call.sequence.steps[self.n_steps :]
        tape = _Tape(
            call.name, call.variables, new, columns, sets,
            [(self._name_of(c, i), c.instance.template, c.instance.variables)
             for i, c in enumerate(sets) if c.instance],
            state.initial_parts[self.n_initial :], steps, result,
        )  # fmt: skip
        same = tape.replacement(call, {v: v for v in (*call.variables, *new)}, sets)
        try:  # the tape keeps copies: callers may mutate results
            steps, result = [same.program(step) for step in steps], same.value(result)
            same.value(tape.initial_parts)
        except NotReplayable:
            return None
        return replace(tape, steps=steps, result=result)

    def _name_of(self, compute_set: ComputeSet, number: int) -> str:
        """Its name; empty if it is only a number, which a replayed set gets again."""
        is_number = compute_set.name == f"cs{self.n_sets + number}"
        return "" if is_number else compute_set.name


_NO_MAP = (np.empty(0, np.int64),) * 3


def _others(call: _ReplayedCall) -> tuple[object, ...]:
    """What no tape holds: an operation that changes any of it is not replayed."""
    handles, state = call.state.handles, call.state
    named = (handles.writes, handles.reads, handles.streams, handles.remote_buffers)
    counts = tuple(len(part) for part in (*named, handles.host_functions, state.perf_estimators))
    layouts = tuple(call.recorder.layouts.of(v) for v in call.variables)
    return counts, state.replica_index, layouts, tuple(state.variables.metadata_of)


@dataclass(frozen=True, slots=True)
class _Tape:
    """What one call added to the graph."""

    name: str
    operands: tuple[int, ...]  # variables of the operands
    new: range  # variables it made
    tile_map: tuple[np.ndarray, ...]  # of the variables it made
    sets: list[ComputeSet]
    templates: list[tuple[str, ComputeSetTemplate, tuple[int, ...]]]  # name, template, variables
    initial_parts: list[tuple[Tensor, np.ndarray]]
    steps: list[Program]
    result: object

    def play(self, call: _ReplayedCall) -> object:
        """Add it again for another call; returns what that call would."""
        state, source = call.state, user_source()
        ids = dict(zip(self.operands, call.variables, strict=True))
        ids.update((old, self._add_variable(old, call, source)) for old in self.new)
        self._add_tile_map(call, ids)
        for old in self.new:
            call.recorder.layouts.note_alike(ids[old], old)
        sets = [
            ComputeSet(
                self.renamed(name, call) or f"cs{number}",
                source,
                TemplateInstance(
                    template, tuple(ids.get(v, v) for v in variables), state.variables
                ),
            )
            for number, (name, template, variables) in enumerate(
                self.templates, len(state.compute_sets)
            )
        ]
        state.compute_sets.extend(sets)
        other = self.replacement(call, ids, sets)
        state.initial_parts.extend((other.tensor(t), values) for t, values in self.initial_parts)
        call.sequence.steps.extend(other.program(step) for step in self.steps)
        return other.value(self.result)

    def replacement(
        self, call: _ReplayedCall, ids: dict[int, int], sets: list[ComputeSet]
    ) -> "_Replacement":
        by_old = {id(old): new for old, new in zip(self.sets, sets, strict=True)}
        return _Replacement(self, call, ids, by_old, user_source(), {})

    def renamed(self, name: str, call: _ReplayedCall) -> str:
        """A name of the tape with the recorded call's name at its start replaced by this call's."""
        is_own = bool(self.name) and name.startswith(self.name)
        return call.name + name[len(self.name) :] if is_own else name

    def _add_variable(self, old: int, call: _ReplayedCall, source: Source) -> int:
        variables = call.state.variables
        name = variables.names[old]
        name = "" if name == f"v{old}" else self.renamed(name, call)
        new = variables.add(
            name, variables.types[old], variables.shapes[old], source, variables.is_constant[old]
        )
        if old in variables.notes:
            variables.notes[new] = variables.notes[old]
        return new

    def _add_tile_map(self, call: _ReplayedCall, ids: dict[int, int]) -> None:
        """The recorded tile map, moved: new variables are as far apart as the recorded ones."""
        if self.new:
            base = call.state.variables.base_bytes
            shift = base[ids[self.new[0]]] - base[self.new[0]]
            call.state.tile_map.append(self.tile_map, shift)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Copies values of a tape with its variables and compute sets exchanged."""

    tape: _Tape
    call: _ReplayedCall
    ids: dict[int, int]
    sets: dict[int, ComputeSet]  # by the id of the recorded one
    source: Source
    pieces: dict[int, Pieces]  # copied already, by the id of the recorded one

    def value(self, value: object) -> object:
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, Program):
            return self.program(value)
        if isinstance(value, ComputeSet):
            if id(value) not in self.sets:
                raise NotReplayable
            return self.sets[id(value)]
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, dict):
            return {k: self.value(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.value, value))  # pyright: ignore[reportArgumentType]
        if isinstance(value, tuple | list):
            return type(value)(self.value(part) for part in value)
        if (
            is_dataclass(value)
            and not isinstance(value, type)
            and all(f.init for f in fields(value))
        ):
            parts = {f.name: self.value(getattr(value, f.name)) for f in fields(value)}
            return replace(value, **parts)
        raise NotReplayable

    def program(self, program: Program) -> Program:
        parts = {
            name: self.value(part)
            for name, part in vars(program).items()
            if name not in ("source", "name", "repeats")
        }
        parts["source"], parts["name"] = self.source, self.tape.renamed(program.name, self.call)
        if isinstance(program, Copy):
            parts["repeats"] = program.repeats or program
        return with_parts(program, **parts)

    def tensor(self, tensor: Tensor) -> Tensor:
        variables, size = tensor.variables, tensor.type.n_bytes
        offset, pieces = tensor.offset, tensor.pieces
        if pieces is None:
            offset += self._shift_bytes(variables.id_at(offset * size)) // size
        else:
            pieces = self._replaced(pieces, size)
        return Tensor(variables, tensor.type, offset, tensor.shape, tensor.strides, pieces)

    def _shift_bytes(self, variable: int) -> int:
        base = self.call.state.variables.base_bytes
        return base[self.ids.get(variable, variable)] - base[variable]

    def _replaced(self, pieces: Pieces, n_bytes: int) -> Pieces:
        if id(pieces) not in self.pieces:
            table = self.call.state.variables
            self.pieces[id(pieces)] = moved_pieces(pieces, n_bytes, table, self.ids)
        return self.pieces[id(pieces)]
