"""That a report adds up to what the engine says, whatever way its numbers are added."""

from itertools import combinations

import numpy as np

from tremula.compiler.passes.memory import CATEGORIES, CODE_CATEGORIES
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.summary import execution_totals, memory_totals, summary, tree
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.analysis.whatif import RecostableProgram
from tremula.vision.pva import report as pva
from tremula.vision.report.time_totals import (
    PARTS,
    PHASES,
    chip_split,
    path_of_steps,
    path_of_types,
)


def assert_sums(reader, engine):
    """All cycles and bytes of the file are the engine's, whatever way they are added up."""
    wanted = engine.report()
    assert reader.info["total_cycles"] == wanted.total_cycles
    assert reader.table("steps")["executed"].tolist() == wanted.steps.executed.tolist()
    ipus = reader.table("ipus")
    assert (chip_split(reader).sum(axis=1) == wanted.total_cycles).all()
    assert np.array_equal(ipus["cycles"], wanted.cycles_of_chip)
    tiles = reader.table("tiles")
    assert np.array_equal(tiles["compute"], wanted.tiles.compute)
    assert np.array_equal(tiles["including_gaps"], wanted.memory.including_gaps)
    n = len(CATEGORIES)
    held = reader.matrix("always_live").rows(0, n) + reader.matrix("temporary").rows(0, n)
    assert np.array_equal(held.sum(axis=0), wanted.memory.excluding_gaps)
    assert memory_totals(reader)["total"] == wanted.memory.including_gaps.sum()
    assert_tile_sums(reader, wanted)
    assert_trace_sums(reader, wanted)
    assert_addresses(reader)
    columns = operation_columns(reader)
    assert_flop_sums(reader, columns)
    assert_one_total(reader, wanted.total_cycles)


def assert_one_total(reader, total):
    """Every view adds up to the engine's clock: shares are of the same thing everywhere."""
    shown = execution_totals(reader)
    assert shown["total_cycles"] == total
    assert sum(shown[name] for name in PARTS) == total
    assert path_of_steps(reader).sum() == reader.table("steps")["total_cycles"].sum() == total
    assert operation_columns(reader)["cycles"].sum() == total
    roots = [node["total_cycles"] for node in tree(reader) if node["parent"] < 0]
    assert sum(roots) == total
    assert sum(path_of_types(reader).values()) == total
    assert reader.by_ipu("path_cycles").sum() == total
    assert reader.info["estimated_cycles"] == 0
    assert int(reader.trace.end.max(initial=0)) == total
    assert f"{total:,} cycles" in text_of_view("summary", summary(reader), 0)
    assert RecostableProgram(reader).as_reported().total_cycles == total
    assert_pva_total(pva.Report(reader), total)
    assert all(0 <= advice["saves_cycles"] <= total for advice in insights(reader))


def assert_pva_total(report, total):
    """Objects of pva, walked one by one, add up as well."""
    execution = report.execution
    assert execution.totalCycles == execution.totalCycles.total == total
    assert sum(execution.cyclesByTypeName().values()) == total
    assert sum(execution.cyclesByPhase().values()) == total
    assert sum(root.cycles for root in report.compilation.controlPrograms) == total
    ipus = report.reader.table("ipus")
    for ipu in range(report.reader.n_ipus):
        steps = [step.ipus[ipu] for step in execution.steps]
        for name, attribute in (
            ("compute", "computeCycles"), ("exchange", "exchangeCycles"), ("links", "linkCycles"),
            ("host", "hostCycles"), ("sync", "syncCycles"),
        ):  # fmt: skip
            assert sum(getattr(step, attribute) for step in steps) == ipus[name][ipu], name


def assert_flop_sums(reader, operations):
    """Flops of vertices, compute sets, steps and operations are the same ones."""
    steps, sets, vertices = (reader.table(n) for n in ("steps", "compute_sets", "vertices"))
    of_set = np.bincount(vertices["compute_set"], vertices["n_flops"], len(sets["id"]))
    assert np.array_equal(of_set, sets["n_flops"])
    of_step = np.append(sets["n_flops"], 0)[steps["compute_set"]]  # row -1 is the appended zero
    assert np.array_equal(of_step, steps["n_flops"])
    assert operations["n_flops"].sum() == (steps["n_flops"] * steps["executed"]).sum()
    assert (operations["efficiency"] <= operations["roofline"] + 1e-9).all()
    assert (operations["roofline"] <= 1).all()


def assert_tile_sums(reader, wanted):
    executed = wanted.steps.executed
    compute = reader.matrix("compute").rows(0, reader.n_steps)
    assert np.array_equal((compute * executed[:, None]).sum(axis=0), wanted.tiles.compute)
    largest = compute.reshape(reader.n_steps, reader.n_ipus, -1).max(axis=2)
    counts = np.array([k.value == "OnTileExecute" for k in wanted.steps.kind], bool)
    assert np.array_equal(largest[counts], wanted.steps.compute[counts])


def assert_addresses(reader):
    """Variables that live at the same time overlap on no tile, and none overlaps code.

    A variable can live several times: in a loop, and in a function that the loop calls.
    """
    is_code = np.isin(CATEGORIES, CODE_CATEGORIES)
    code = reader.matrix("always_live").rows(0, len(CATEGORIES))[is_code].sum(axis=0)
    always = reader.column("variable.always_live").astype(bool)
    first, last = reader.table("variables")["first_step"], reader.table("variables")["last_step"]
    lives = [reader.column(f"live.{name}") for name in ("variable", "first", "last")]
    for tile in range(reader.n_tiles):
        variable, n_bytes = reader.tile_variables(tile)
        address = reader.tile_addresses(tile)
        is_temporary = last[variable] >= first[variable]
        assert (address[(always[variable] | is_temporary) & (first[variable] >= 0)] >= 0).all()
        end = address + n_bytes
        rows = np.flatnonzero((address >= 0) & (n_bytes > 0))
        assert (address[rows] >= code[tile]).all()
        for i, j in combinations(rows.tolist(), 2):
            v, w = variable[i], variable[j]
            meet = always[v] or always[w] or _meet(lives, v, w)
            assert not meet or end[i] <= address[j] or end[j] <= address[i], (tile, v, w)


def _meet(lives, v, w):
    """Whether one of the times that a variable lives overlaps one of another's."""
    variable, first, last = lives
    begins = np.maximum.outer(first[variable == v], first[variable == w])
    ends = np.minimum.outer(last[variable == v], last[variable == w])
    return bool((begins <= ends).any())


def assert_trace_sums(reader, wanted):
    trace = reader.trace
    per_step = np.bincount(trace.step, trace.times, reader.n_steps)
    assert np.array_equal(per_step, wanted.steps.executed)
    for max_rows in (1, 3, 1000):
        result = reader.phases(0, reader.n_entries, max_rows)
        assert len(result.edges) <= max_rows + 1
        assert np.array_equal(result.compute.sum(axis=0), wanted.tiles.compute)
        together = sum(getattr(result, name) for name in (*PHASES, "idle"))
        assert result.idle.min(initial=0) >= 0
        cycles = np.repeat(wanted.cycles_of_chip, reader.tiles_per_ipu)
        assert np.array_equal(together.sum(axis=0), cycles)
