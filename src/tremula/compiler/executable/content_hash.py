"""The content hash of lowered programs: equal hashes mean equal executables."""

from tremula.base.options import OptionValues
from tremula.base.version import VERSION
from tremula.compiler.executable.emit import (
    host_records,
    machine_record,
    step_record,
    variable_records,
)
from tremula.compiler.executable.records import view_of
from tremula.compiler.file.codec import digest_of
from tremula.compiler.passes.vertex_costs import cost_table
from tremula.compiler.program_ir import FrozenGraph, LoweredPrograms
from tremula.poplar.vertices.columns import FrozenTable


def content_hash(programs: LoweredPrograms, options: OptionValues) -> str:
    """A hash of everything that decides what an executable is, its costs included."""
    graph = programs.graph
    tables = [
        [cs.name, str(cs.source), [_table_parts(t, graph) for t in cs.tables]]
        for cs in graph.compute_sets
    ]
    copies = [[*c.source, *c.destination, c.n_bytes, c.overlaps] for c in programs.copies]
    parts = [
        VERSION, options.to_dict(), machine_record(graph), graph.replication_factor,
        list(graph.tile_map), tables, [step_record(s) for s in programs.steps], copies,
        [s.is_merged_host_sync for s in programs.steps],
        programs.names, programs.entries, programs.code, programs.step_of, programs.switch_cases,
        variable_records(graph.variables), graph.replica_index,
        [[view_of(t), v] for t, v in graph.initial_parts], host_records(graph),
    ]  # fmt: skip
    return digest_of(parts)


def _table_parts(table: FrozenTable, graph: FrozenGraph) -> list[object]:
    """What a vertex table is and costs.

    A `cycles` method or an estimator is code; its result is data, so the result is hashed.
    """
    cost = cost_table(table, graph.target.chip, graph.perf_estimators)
    return [
        table.codelet.content_hash(),
        table.tile,
        [[e.sub_start, e.run_start, *e.runs] for e in table.edges.values()],
        [[s.start, s.value] for s in table.states.values()],
        [cost.cycles, cost.provenance_cycles, cost.n_flops, cost.peak_cycles],
    ]
