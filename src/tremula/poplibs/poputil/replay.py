"""Replay: an operation that was built before is built again by copying what it made.

An operation looks at the layouts of its operands, never at their addresses. So the second time it
is called with operands laid out alike, it would make the same variables, vertices and programs over
other addresses. `@replayed` records what the first call adds to the graph and, from then on, adds
that again with the variables exchanged.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from tremula.base.source import Source, user_source
from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph, GraphState
from tremula.poplar.programs import Copy, Program, Sequence
from tremula.poplar.tensors.layout import moved_pieces
from tremula.poplar.tensors.runs import Pieces
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet, TemplateInstance
from tremula.poplar.vertices.template import ComputeSetTemplate, template_of
from tremula.poplibs.poputil.layout_key import (
    CallKey,
    NotReplayable,
    VariableLayouts,
    key_of_graph,
)

P = ParamSpec("P")
R = TypeVar("R")
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic, np.ndarray, Enum, Type, Source)


def replayed(function: Callable[P, R]) -> Callable[P, R]:
    """Let an operation be recorded and replayed.

    It must be a function of its arguments and the layouts of its tensors, and add to the graph and
    to the end of `sequence`, if it takes one, only.
    """
    parameters = signature(function)
    makes_programs = "sequence" in parameters.parameters

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = parameters.bind(*args, **kwargs).arguments
            call = _call_of(function, given, makes_programs)
        except (TypeError, NotReplayable):  # a wrong call says so itself
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


class _Recorder:
    """What was recorded of one graph; None stands for what cannot be replayed."""

    def __init__(self, state: GraphState):
        self.layouts = VariableLayouts(state)
        self.tapes: dict[object, _Tape | None] = {}


_RECORDERS: WeakKeyDictionary[GraphState, _Recorder] = WeakKeyDictionary()


_NO_SEQUENCE = Sequence()  # nobody adds to it


@dataclass(frozen=True, slots=True)
class _Call:
    recorder: _Recorder
    state: GraphState
    sequence: Sequence
    name: str
    key: object
    variables: tuple[int, ...]  # those of the operands, as they are met


def _call_of(function: Callable, given: Mapping[str, Any], makes_programs: bool) -> _Call:
    graph, sequence = given.get("graph"), given.get("sequence") if makes_programs else _NO_SEQUENCE
    if not isinstance(graph, Graph) or not isinstance(sequence, Sequence):
        raise NotReplayable
    state = graph.state
    recorder = _RECORDERS.get(state)
    if recorder is None:
        recorder = _RECORDERS[state] = _Recorder(state)
    name = given.get("name") or ""
    key = CallKey(recorder.layouts)
    others = ((k, key.of(v)) for k, v in given.items() if k not in ("graph", "sequence", "name"))
    whole = (function, key_of_graph(graph), bool(name), *others)
    return _Call(
        recorder, state, sequence, str(name), (whole, key.of_variables()), tuple(key.numbers)
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """How long everything was before a call."""

    n_variables: int
    n_sets: int
    n_initial: int
    n_steps: int
    others: tuple[object, ...]

    @staticmethod
    def now(call: _Call) -> "_Mark":
        state = call.state
        return _Mark(
            len(state.variables), len(state.compute_sets), len(state.initial_parts),
            len(call.sequence.steps), _others(call),
        )  # fmt: skip

    def tape(self, call: _Call, result: object) -> "_Tape | None":
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
        steps = call.sequence.steps[self.n_steps :]
        tape = _Tape(
            call.name, call.variables, new, columns, sets,
            [(self._name_of(c, i), c.instance.template, c.instance.variables)
             for i, c in enumerate(sets) if c.instance],
            state.initial_parts[self.n_initial :], steps, result,
        )  # fmt: skip
        same = tape.replacement(call, {v: v for v in (*call.variables, *new)}, sets)
        try:  # copies: who called may add to lists and sequences that he got
            steps, result = [same.program(step) for step in steps], same.value(result)
            same.value(tape.initial_parts)
        except NotReplayable:
            return None
        return replace(tape, steps=steps, result=result)

    def _name_of(self, compute_set: ComputeSet, number: int) -> str:
        """Its name; none if that is only its number."""
        is_number = compute_set.name == f"cs{self.n_sets + number}"
        return "" if is_number else compute_set.name


_NO_MAP = (np.empty(0, np.int64),) * 3


def _others(call: _Call) -> tuple[object, ...]:
    """What an operation must not change if it is to be replayed."""
    handles, state = call.state.handles, call.state
    named = (handles.writes, handles.reads, handles.streams, handles.remote_buffers)
    counts = tuple(len(part) for part in (*named, handles.host_functions, state.perf_estimators))
    layouts = tuple(call.recorder.layouts.of(v) for v in call.variables)
    return counts, state.replica_index, layouts, tuple(state.variables.metadata_of)


@dataclass(frozen=True, slots=True)
class _Tape:
    """What one call added to the graph."""

    name: str
    given: tuple[int, ...]  # variables of the operands
    new: range  # variables it made
    tile_map: tuple[np.ndarray, ...]  # of these
    sets: list[ComputeSet]
    templates: list[tuple[str, ComputeSetTemplate, tuple[int, ...]]]
    initial_parts: list[tuple[Tensor, np.ndarray]]
    steps: list[Program]
    result: object

    def play(self, call: _Call) -> object:
        """Add it again for another call; returns what that call would."""
        state, source = call.state, user_source()
        ids = dict(zip(self.given, call.variables, strict=True))
        ids.update((old, self._add_variable(old, call, source)) for old in self.new)
        self._add_tile_map(call, ids)
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
        self, call: _Call, ids: dict[int, int], sets: list[ComputeSet]
    ) -> "_Replacement":
        by_old = {id(old): new for old, new in zip(self.sets, sets, strict=True)}
        return _Replacement(self, call, ids, by_old, user_source(), {})

    def renamed(self, name: str, call: _Call) -> str:
        """A name that begins with the name of the recorded call begins with that of this one."""
        is_own = bool(self.name) and name.startswith(self.name)
        return call.name + name[len(self.name) :] if is_own else name

    def _add_variable(self, old: int, call: _Call, source: Source) -> int:
        variables = call.state.variables
        name = variables.names[old]
        name = "" if name == f"v{old}" else self.renamed(name, call)
        new = variables.add(
            name, variables.types[old], variables.shapes[old], source, variables.is_constant[old]
        )
        if old in variables.notes:
            variables.notes[new] = variables.notes[old]
        return new

    def _add_tile_map(self, call: _Call, ids: dict[int, int]) -> None:
        """All new variables lie as far from each other as the recorded ones do."""
        if self.new:
            base = call.state.variables.base_bytes
            shift = base[ids[self.new[0]]] - base[self.new[0]]
            begin, end, tile = self.tile_map
            call.state.tile_map.add_many(begin + shift, end + shift, tile)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Values of a tape with its variables and compute sets replaced by others."""

    tape: _Tape
    call: _Call
    ids: dict[int, int]
    sets: dict[int, ComputeSet]  # by the id of the recorded one
    source: Source
    pieces: dict[int, Pieces]  # made already, by the id of the recorded one

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
        new = copy(program)  # checked when the first was built
        for field in fields(program):
            if field.name == "repeats":
                continue
            part = getattr(program, field.name)
            if field.name == "source":
                part = self.source
            elif field.name == "name":
                part = self.tape.renamed(part, self.call)
            else:
                part = self.value(part)
            object.__setattr__(new, field.name, part)
        if isinstance(program, Copy):
            object.__setattr__(new, "repeats", program.repeats or program)
        return new

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
        if type(pieces) is not Pieces:
            raise NotReplayable
        if id(pieces) not in self.pieces:
            table = self.call.state.variables
            self.pieces[id(pieces)] = moved_pieces(pieces, n_bytes, table, self.ids)
        return self.pieces[id(pieces)]
