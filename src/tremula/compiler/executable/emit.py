"""The last pass: everything as plain records, ready to run, save and load."""

import json
from collections.abc import Mapping

import numpy as np

from tremula.codelets.columns import columns_of
from tremula.codelets.spec import Codelet
from tremula.compiler.executable.executable import Analysis, Executable
from tremula.compiler.executable.rearrange import plan_compute_sets, scratch_base
from tremula.compiler.executable.records import (
    ComputeSetRecord,
    HostRecords,
    InitialValue,
    MachineRecord,
    StepRecord,
    TableRecord,
    VariableRecords,
    buffer_record,
    host_function_record,
    stream_record,
    view_of,
)
from tremula.compiler.program_ir import FrozenGraph, LoweredPrograms, Step
from tremula.compiler.worker_states import n_states_bytes, states_byte, worker_state_column
from tremula.hardware import chip_to_toml, single, system_to_toml
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import FrozenTable


def emit(
    programs: LoweredPrograms, analysis: Analysis, options: Mapping[str, object]
) -> Executable:
    """An executable of lowered programs and what the passes found out about them."""
    graph = programs.graph
    plans = plan_compute_sets(graph)
    n_scratch = max((plan.n_scratch_bytes for plan in plans), default=0)
    first_state = states_byte(scratch_base(graph.variables) + n_scratch)
    codelets: dict[int, tuple[int, Codelet]] = {}
    records = []
    for compute_set, plan in zip(graph.compute_sets, plans, strict=True):
        tables = tuple(
            _table_record(table, table_plan.columns, codelets, graph, first_state)
            for table, table_plan in zip(compute_set.template_tables, plan.tables, strict=True)
        )
        records.append(
            ComputeSetRecord(
                compute_set.name, str(compute_set.source), tables, plan.gathers, plan.scatters
            )
        )
    executable = Executable(
        machine=machine_record(graph),
        replication_factor=graph.replication_factor,
        replica_index_byte=_replica_index_byte(graph),
        names=programs.names,
        entries=programs.entries,
        code=programs.code,
        step_of=programs.step_of,
        switch_cases=programs.switch_cases,
        n_loop_slots=programs.n_loop_slots,
        n_arena_bytes=first_state + n_states_bytes(graph.target),
        worker_states_byte=first_state,
        steps=tuple(step_record(step) for step in programs.steps),
        copies=programs.copies,
        compute_sets=tuple(records),
        codelet_forms=tuple(json.dumps(codelet.to_dict()) for _, codelet in codelets.values()),
        variables=variable_records(graph.variables),
        initial_values=tuple(InitialValue(view_of(t), v) for t, v in graph.initial_parts),
        host=host_records(graph),
        analysis=analysis,
        options=dict(options),
        tile_map=graph.tile_map,
    )
    # The codelets are already here: no need to rebuild them from their stored form.
    executable.__dict__["codelets"] = tuple(codelet for _, codelet in codelets.values())
    return executable


def _table_record(
    table: FrozenTable,
    columns: tuple[np.ndarray, ...],
    codelets: dict[int, tuple[int, Codelet]],
    graph: FrozenGraph,
    first_state: int,
) -> TableRecord:
    spec = table.codelet.spec
    if spec.has_worker_state:
        state = worker_state_column(spec, table.tile, graph.target, first_state)
        columns = (*columns, state)
    number, _ = codelets.setdefault(id(table.codelet), (len(codelets), table.codelet))
    mutable = tuple(
        column.index
        for column in columns_of(spec.fields)
        if column.role == "value" and not column.field.is_const
    )
    return TableRecord(number, table.tile, columns, mutable, is_costed(table, graph))


def is_costed(table: FrozenTable, graph: FrozenGraph) -> bool:
    """Whether a table's cycles are known without running it."""
    if table.estimate_cycles is not None and bool((table.estimate_cycles >= 0).all()):
        return True
    named = table.codelet.spec.name in graph.perf_estimators
    return named or not table.codelet.is_data_dependent


def machine_record(graph: FrozenGraph) -> MachineRecord:
    target = graph.target
    assert target.system is not None, "Target.__post_init__ sets it"
    system = target.system
    is_ad_hoc = system.name == single(target.chip, system.n_ipus).name
    return MachineRecord(
        chip_to_toml(target.chip),
        target.n_ipus,
        target.tiles_per_ipu,
        target.type.value,
        system_to_toml(system, with_chip=False),
        "" if is_ad_hoc else system.name,
    )


def _replica_index_byte(graph: FrozenGraph) -> int:
    variable = graph.replica_index
    return -1 if variable is None else graph.variables.base_bytes[variable]


def step_record(step: Step) -> StepRecord:
    return StepRecord(
        step.kind,
        step.name,
        str(step.source),
        step.path,
        step.compute_set,
        tuple(view_of(t) for t in step.reads),
        tuple(view_of(t) for t in step.writes),
        step.detail if isinstance(step.detail, Mapping) else {},
    )


def variable_records(variables: VariableTable) -> VariableRecords:
    return VariableRecords(
        tuple(variables.names),
        tuple(t.name for t in variables.types),
        tuple(variables.shapes),
        np.array(variables.base_bytes, np.int64),
        np.array(variables.end_bytes, np.int64),
        np.array(variables.is_constant, bool),
        tuple(str(s) for s in variables.sources),
    )


def host_records(graph: FrozenGraph) -> HostRecords:
    handles = graph.handles
    tensors = {id(t): t for t in (*handles.writes.values(), *handles.reads.values())}
    views = {key: view_of(t) for key, t in tensors.items()}  # weights have handles of both kinds
    return HostRecords(
        {name: views[id(t)] for name, t in handles.writes.items()},
        {name: views[id(t)] for name, t in handles.reads.items()},
        {name: stream_record(s) for name, s in handles.streams.items()},
        {name: buffer_record(b) for name, b in handles.remote_buffers.items()},
        {name: host_function_record(f) for name, f in handles.host_functions.items()},
    )
