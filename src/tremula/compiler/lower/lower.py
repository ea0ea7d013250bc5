"""Programs → a flat instruction table over static steps."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np

from tremula.base.errors import ControlProgramError, GraphRecursionError
from tremula.base.source import user_source
from tremula.compiler.lower.copies import CopyTemplate, template_of_copy, variables_of_copy
from tremula.compiler.lower.dedup import (
    VariableLayouts,
    alike_copies,
    alike_on_chips,
    first_alike,
)
from tremula.compiler.program_ir import (
    N_OPERANDS,
    CopyPlan,
    FrozenComputeSet,
    FrozenGraph,
    LoweredPrograms,
    Opcode,
    Step,
    StepKind,
)
from tremula.poplar import programs as p
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Function, FunctionBuffer
from tremula.poplar.streams import DataStream, HostFunction, RemoteBuffer
from tremula.poplar.tensors.layout import variables_met
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet

# -- the table, as it grows ------------------------------------------------------------------------


class InstructionTable:
    """Grows the instruction table while walking program trees."""

    def __init__(self) -> None:
        self.code: list[list[int]] = []
        self.step_of: list[int] = []
        self.steps: list[Step] = []
        self.copies: list[CopyPlan] = []
        self.copy_kinds: list[tuple[bytes, tuple[int, ...]]] = []  # digest and variables
        self.copy_templates: dict[p.Copy, CopyTemplate] = {}
        self.cases: list[tuple[int, int]] = []
        self.compute_sets: dict[ComputeSet, int] = {}
        self.names: list[str] = []
        self.entries: list[int] = []
        self.functions: dict[Function, int] = {}  # function -> number, in order of first call
        self.function_entries: list[int] = []
        self.calls: dict[Function | None, set[Function]] = {}  # who calls whom
        self.caller: Function | None = None
        self.path: tuple[str, ...] = ()
        self.n_loop_slots = 0

    def emit(self, op: Opcode, *operands: int, step: int = -1) -> int:
        """Append an instruction; return its index, for patching."""
        self.code.append([int(op), *operands, *[0] * (N_OPERANDS - len(operands))])
        self.step_of.append(step)
        return len(self.code) - 1

    def here(self) -> int:
        return len(self.code)

    def patch(self, at: int, operand: int) -> None:
        """Let an operand (0 = a) of an earlier instruction point here."""
        self.code[at][1 + operand] = self.here()

    def add_step(
        self,
        program: p.Program,
        kind: StepKind,
        *,
        name: str = "",
        compute_set: int = -1,
        reads: tuple[Tensor, ...] = (),
        writes: tuple[Tensor, ...] = (),
        detail: object = None,
    ) -> int:
        name = name or program.name or type(program).__name__
        is_merged = self._follows_stream_copy(kind)
        step = Step(
            kind, name, program.source, self.path, compute_set, reads, writes, detail, is_merged
        )
        self.steps.append(step)
        return len(self.steps) - 1

    def _follows_stream_copy(self, kind: StepKind) -> bool:
        """Adjacent stream copies of one direction share a host sync."""
        before = self.step_of[-1] if self.step_of else -1
        streams = (StepKind.STREAM_IN, StepKind.STREAM_OUT)
        return before >= 0 and kind in streams and self.steps[before].kind is kind

    def add_copy(self, first: p.Copy, source: Tensor, destination: Tensor) -> int:
        """Plan a copy, or shift the plan of the one that it repeats; returns its number."""
        template = self.copy_templates.get(first)
        if template is None:
            sides = cast("tuple[Tensor, Tensor]", (first.source_of_data, first.destination))
            template = self.copy_templates[first] = template_of_copy(*sides)
        variables = variables_of_copy(source, destination)
        self.copies.append(template.over(source.variables, variables))
        self.copy_kinds.append((template.digest, variables))
        return len(self.copies) - 1

    def finish(self, graph: Graph) -> LoweredPrograms:
        state = graph.state
        frozen = FrozenGraph(
            graph.target,
            graph.replication_factor,
            state.variables,
            state.tile_map.resolve(),
            tuple(
                FrozenComputeSet(cs.name, cs.source, cs.instance or cs.frozen_tables())
                for cs in self.compute_sets
            ),
            state.handles,
            tuple(state.initial_parts),
            dict(state.perf_estimators),
            state.replica_index,
        )
        layouts = VariableLayouts(frozen)
        frozen = replace(frozen, first_alike=first_alike(frozen, layouts))
        frozen = replace(frozen, on_chips=alike_on_chips(frozen))
        return LoweredPrograms(
            frozen,
            tuple(self.names),
            tuple(self.entries),
            np.array(self.code, np.int64).reshape(-1, 1 + N_OPERANDS),
            np.array(self.step_of, np.int64),
            tuple(self.steps),
            tuple(self.copies),
            np.array(self.cases, np.int64).reshape(-1, 2),
            self.n_loop_slots,
            alike_copies(frozen, self.copy_kinds, layouts),
        )


# -- programs, one kind after another --------------------------------------------------------------

Programs = p.Program | Mapping[str, p.Program] | Iterable[p.Program]


def lower(graph: Graph, programs: Programs) -> LoweredPrograms:
    """Freeze the graph and flatten its programs."""
    table = InstructionTable()
    for name, program in named_programs(programs).items():
        _add_entry(table, name, program)
    _add_functions(table)
    return table.finish(graph.top)


def named_programs(programs: Programs) -> dict[str, p.Program]:
    """One program, a list or a dict of them, as a dict; unnamed ones are called by their index."""
    if isinstance(programs, p.Program):
        programs = [programs]
    if isinstance(programs, Mapping):
        named = dict(cast("Mapping[str, p.Program]", programs))
    else:
        named = _named_by_index(list(programs))
    for name, program in named.items():
        if not isinstance(program, p.Program):
            raise ControlProgramError(
                f"program {name!r} is a {type(program).__name__}, expected a program.",
                source=user_source(),
                hint="give one program, a list of programs or a dict of them",
            )
    return named


def _named_by_index(programs: list[p.Program]) -> dict[str, p.Program]:
    """Programs by their own names where all differ, else by their places."""
    names = [getattr(program, "name", "") for program in programs]
    is_unique = len(set(names)) == len(names)
    return {
        (name if name and is_unique else str(i)): program
        for i, (name, program) in enumerate(zip(names, programs, strict=True))
    }


def _add_entry(table: InstructionTable, name: str, program: p.Program) -> None:
    table.names.append(name)
    table.entries.append(table.here())
    _walk(table, program)
    table.emit(Opcode.END)


def _add_functions(table: InstructionTable) -> None:
    """Emit each called function once; functions may call further functions."""
    while len(table.function_entries) < len(table.functions):
        function = list(table.functions)[len(table.function_entries)]
        table.function_entries.append(table.here())
        table.caller = function
        _walk(table, function.program)
        table.emit(Opcode.RETURN)
    _check_recursion(table)
    for instruction in table.code:
        if instruction[0] == Opcode.CALL:
            instruction[1] = table.function_entries[instruction[1]]


def _check_recursion(table: InstructionTable) -> None:
    done: set[Function] = set()

    def visit(function: Function, callers: tuple[Function, ...]) -> None:
        if function in callers:
            name = function.name or "a function"
            raise GraphRecursionError(
                f"{name} calls itself: {len(callers)} calls deep.",
                source=function.program.source,
                hint="use Repeat or RepeatWhileTrue; functions have no stack on a tile",
            )
        if function not in done:
            for callee in table.calls.get(function, ()):
                visit(callee, (*callers, function))
            done.add(function)

    for function in table.functions:
        visit(function, ())


def _walk(table: InstructionTable, program: p.Program) -> None:
    handler = _HANDLERS.get(type(program))
    if handler is None:
        raise ControlProgramError(
            f"{type(program).__name__} is not a program this compiler knows.",
            source=program.source,
            hint="use the programs Tremula exports",
        )
    outer = table.path
    if program.name and not isinstance(program, p.Execute | p.Copy):
        table.path = (*outer, program.name)
    handler(table, program)
    table.path = outer


def _sequence(table: InstructionTable, program: p.Sequence) -> None:
    for step in program.steps:
        _walk(table, step)


def _execute(table: InstructionTable, program: p.Execute) -> None:
    number = table.compute_sets.setdefault(program.compute_set, len(table.compute_sets))
    result = program.result
    step = table.add_step(
        program,
        StepKind.EXECUTE,
        name=program.name or program.compute_set.name,
        compute_set=number,
        writes=() if result is None else (result,),
    )
    address, n_bytes = (-1, 0) if result is None else _location(result)
    table.emit(Opcode.EXECUTE, number, address, n_bytes, step=step)


def _location(scalar: Tensor) -> tuple[int, int]:
    """(byte address, bytes) of a scalar tensor."""
    size = scalar.type.n_bytes
    return int(scalar.runs().start[0]) * size, size


def _copy(table: InstructionTable, program: p.Copy) -> None:
    src, dst = program.source_of_data, program.destination
    if isinstance(src, FunctionBuffer):
        table.emit(Opcode.STEP, step=table.add_step(program, StepKind.LOAD_CODE))
    elif isinstance(src, Tensor) and isinstance(dst, Tensor):
        name = program.name or _named_after(dst)
        step = table.add_step(program, StepKind.COPY, name=name, reads=(src,), writes=(dst,))
        table.emit(Opcode.COPY, table.add_copy(program.repeats or program, src, dst), step=step)
    else:
        _host_copy(table, program, src, dst)


def _named_after(destination: Tensor) -> str:
    """A copy without a name is part of what made its destination: "layer/Copy weights"."""
    variable = destination.variables.names[variables_met(destination)[0]]
    operation, slash, name = variable.rpartition("/")
    return f"{operation}{slash}Copy {name}".rstrip()


def _host_copy(
    table: InstructionTable, program: p.Copy, src: p.CopySource, dst: p.CopyDestination
) -> None:
    offset = () if program.offset is None else (program.offset,)
    reads = (*((src,) if isinstance(src, Tensor) else ()), *offset)
    writes = (dst,) if isinstance(dst, Tensor) else ()
    if isinstance(src, DataStream) or isinstance(dst, DataStream):
        kind = StepKind.STREAM_IN if isinstance(src, DataStream) else StepKind.STREAM_OUT
    else:
        kind = StepKind.REMOTE_READ if isinstance(src, RemoteBuffer) else StepKind.REMOTE_WRITE
    handle = next(side.handle for side in (src, dst) if isinstance(side, DataStream | RemoteBuffer))
    detail: dict[str, object] = {"handle": handle}
    if program.waits is not p.Waits.ALL:
        detail["waits"] = program.waits.value
    if any(isinstance(side, DataStream) and side.buffering_depth > 1 for side in (src, dst)):
        detail["is_ahead"] = True
    step = table.add_step(program, kind, reads=reads, writes=writes, detail=detail)
    table.emit(Opcode.HOST, step=step)


def _repeat(table: InstructionTable, program: p.Repeat) -> None:
    slot = table.n_loop_slots
    table.n_loop_slots += 1
    begin = table.emit(Opcode.LOOP_BEGIN, slot, program.count)
    body = table.here()
    _walk(table, program.body)
    table.emit(Opcode.LOOP_END, slot, body)
    table.patch(begin, 2)


def _branch(table: InstructionTable, program: p.Program, predicate: Tensor, op: Opcode) -> int:
    step = table.add_step(program, StepKind.BRANCH, reads=(predicate,))
    return table.emit(op, *_location(predicate), step=step)


def _repeat_while(table: InstructionTable, program: p.RepeatWhileTrue) -> None:
    top = table.here()
    _walk(table, program.condition)
    op = Opcode.BRANCH_NONZERO if program.stops_on else Opcode.BRANCH_ZERO
    leave = _branch(table, program, program.predicate, op)
    _walk(table, program.body)
    table.emit(Opcode.JUMP, top)
    table.patch(leave, 2)


def _loop(table: InstructionTable, program: p.Loop) -> None:
    top = table.here()
    _walk(table, program.body)
    table.emit(Opcode.LOOP_FOREVER, top)


def _if(table: InstructionTable, program: p.If) -> None:
    to_false = _branch(table, program, program.predicate, Opcode.BRANCH_ZERO)
    _walk(table, program.true_body)
    to_end = table.emit(Opcode.JUMP)
    table.patch(to_false, 2)
    _walk(table, program.false_body)
    table.patch(to_end, 0)


def _switch(table: InstructionTable, program: p.Switch) -> None:
    cases: Mapping[int, p.Program] = program.cases  # pyright: ignore[reportAssignmentType]
    step = table.add_step(program, StepKind.BRANCH, reads=(program.control,))
    first = len(table.cases)
    table.cases.extend((value, -1) for value in cases)
    at = table.emit(
        Opcode.SWITCH, *_location(program.control), first, first + len(cases), step=step
    )
    leaves = []
    for i, (value, body) in enumerate(cases.items()):
        table.cases[first + i] = (_sign_extended(value, program.control), table.here())
        _walk(table, body)
        leaves.append(table.emit(Opcode.JUMP))
    table.patch(at, 4)
    if program.on_no_match == "error":
        no_case = p.Abort(f"Switch: no case for the control value; cases are {list(cases)}")
        object.__setattr__(no_case, "source", program.source)  # the user's line, not this one
        _walk(table, no_case)
    else:
        _walk(table, program.default)
    for leave in leaves:
        table.patch(leave, 0)


def _sign_extended(value: int, control: Tensor) -> int:
    """A case value as the interpreter loads it: the top bit of any type is its sign."""
    n_values = 1 << (8 * control.type.n_bytes)
    return value - n_values if value >= n_values // 2 else value


def _call(table: InstructionTable, program: p.Call) -> None:
    function = program.function
    if isinstance(function, HostFunction):
        step = table.add_step(
            program,
            StepKind.HOST_CALL,
            reads=tuple(program.inputs),
            writes=tuple(program.outputs),
            detail={"handle": function.handle},
        )
        table.emit(Opcode.HOST, step=step)
        return
    table.calls.setdefault(table.caller, set()).add(function)
    table.emit(Opcode.CALL, table.functions.setdefault(function, len(table.functions)))


def _block(table: InstructionTable, program: p.Block) -> None:
    _walk(table, program.body)


def _sync(table: InstructionTable, program: p.Sync) -> None:
    detail = {"sync_type": program.sync_type.value}
    table.emit(Opcode.STEP, step=table.add_step(program, StepKind.SYNC, detail=detail))


def _print_tensor(table: InstructionTable, program: p.PrintTensor) -> None:
    fmt = None if program.fmt is None else asdict(program.fmt)
    step = table.add_step(
        program,
        StepKind.PRINT,
        reads=(program.tensor,),
        detail={"title": program.title, "fmt": fmt},
    )
    table.emit(Opcode.HOST, step=step)


def _write_undef(table: InstructionTable, program: p.WriteUndef) -> None:
    table.emit(
        Opcode.STEP, step=table.add_step(program, StepKind.WRITE_UNDEF, writes=(program.tensor,))
    )


def _assume_equal(table: InstructionTable, program: p.AssumeEqualAcrossReplicas) -> None:
    """A promise to Poplar; the runtime checks every predicate on all replicas anyway."""


def _cross_replica(table: InstructionTable, program: p.CrossReplicaCopy) -> None:
    step = table.add_step(
        program,
        StepKind.CROSS_REPLICA,
        reads=(program.source_of_data,),
        writes=(program.destination,),
        detail={"pairs": [[int(a), int(b)] for a, b in program.replica_map.items()]},
    )
    table.emit(Opcode.HOST, step=step)


def _abort(table: InstructionTable, program: p.Abort) -> None:
    detail = {"message": program.message}
    table.emit(Opcode.HOST, step=table.add_step(program, StepKind.ABORT, detail=detail))


def _abort_on_condition(table: InstructionTable, program: p.AbortOnCondition) -> None:
    skip = _branch(table, program, program.predicate, Opcode.BRANCH_ZERO)
    detail = {"message": program.message}
    table.emit(Opcode.HOST, step=table.add_step(program, StepKind.ABORT, detail=detail))
    table.patch(skip, 2)


def _error_program(table: InstructionTable, program: p.ErrorProgram) -> None:
    step = table.add_step(
        program, StepKind.ABORT, reads=(program.tensor,), detail={"message": program.message}
    )
    table.emit(Opcode.HOST, step=step)


def _stamp(table: InstructionTable, program: p.CycleStamp) -> None:
    since = () if program.since is None else (program.since,)
    step = table.add_step(
        program,
        StepKind.STAMP,
        reads=since,
        writes=(program.tensor,),
        detail={"sync_type": program.sync_type.value},
    )
    earlier = _location(program.since)[0] if program.since is not None else -1
    table.emit(Opcode.STAMP, _location(program.tensor)[0], program.tile, earlier, step=step)


def _machine_state(table: InstructionTable, program: p.SetMachineState) -> None:
    reads = () if program.seeds is None else (program.seeds,)
    step = table.add_step(
        program, StepKind.MACHINE_STATE, reads=reads, detail={"set": dict(program.values)}
    )
    table.emit(Opcode.HOST, step=step)


def _get_hw_seeds(table: InstructionTable, program: p.GetHwSeeds) -> None:
    step = table.add_step(
        program, StepKind.MACHINE_STATE, writes=(program.tensor,), detail={"get": "seeds"}
    )
    table.emit(Opcode.HOST, step=step)


_HANDLERS: dict[type, Callable[[InstructionTable, Any], None]] = {
    p.Sequence: _sequence,
    p.Execute: _execute,
    p.Copy: _copy,
    p.Repeat: _repeat,
    p.RepeatWhileTrue: _repeat_while,
    p.RepeatWhileFalse: _repeat_while,
    p.Loop: _loop,
    p.If: _if,
    p.Switch: _switch,
    p.Call: _call,
    p.Block: _block,
    p.Sync: _sync,
    p.PrintTensor: _print_tensor,
    p.WriteUndef: _write_undef,
    p.AssumeEqualAcrossReplicas: _assume_equal,
    p.CrossReplicaCopy: _cross_replica,
    p.Abort: _abort,
    p.AbortOnCondition: _abort_on_condition,
    p.ErrorProgram: _error_program,
    p.CycleStamp: _stamp,
    p.SetMachineState: _machine_state,
    p.GetHwSeeds: _get_hw_seeds,
}
