"""pva's object model on a report: names to the letter, figures the engine's."""

import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest

import pva
from tests.vision.programs import summing_engine
from tremula.base.errors import FileLoadError, MissingProfileData
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import report_of_engine, write_report


@pytest.fixture
def opened(report_file):
    return pva.openReport(report_file)


def test_target_and_graph(opened, engine):
    """Sizes, memory and clock of the target, sizes of the graph."""
    target, chip = opened.compilation.target, engine.executable.target.chip
    assert (target.numIPUs, target.tilesPerIpu, target.numTiles, target.numReplicas) == (1, 8, 8, 1)
    assert target.bytesPerTile == chip.n_bytes_per_tile
    assert target.totalMemory == target.memoryPerReplica == 8 * chip.n_bytes_per_tile
    assert target.bytesPerIPU == 8 * chip.n_bytes_per_tile
    assert target.clockFrequency == chip.clock_hz
    assert target.type is pva.TargetType.IpuModel
    assert target.architecture is pva.IPU.Architecture.Ipu2
    assert target.minSyncDelay == chip.sync_cycles
    graph = opened.compilation.graph
    assert (graph.numComputeSets, graph.numVertices, graph.numVars) == (1, 24, 3)
    assert opened.instrumentationSettings.compute == pva.ComputeInstrumentation.Vertex == 1
    assert opened.version.major == 2
    assert opened.poplarVersion.string.count(".") == 2


def test_tile_memory(opened, engine):
    """Bytes of a tile by category are those of the engine's report, and add up."""
    wanted = engine.report().memory
    assert len(opened.compilation.tiles) == len(opened.compilation.ipus[0].tiles) == 8
    for number, tile in enumerate(opened.compilation.tiles):
        memory = tile.memory
        assert memory.alwaysLiveBytes == wanted.always_live[:, number].sum()
        assert memory.notAlwaysLiveBytes == wanted.temporary[:, number].sum()
        assert memory.total.includingGaps == wanted.including_gaps[number]
        assert memory.overflowed.includingGaps == 0
        names = [name for name in dir(memory.category) if name[0] != "_"]
        total = sum(getattr(memory.category, name).total for name in names)
        assert total == memory.total.excludingGaps
        assert memory.category.vertexCode.total == sum(v.codeBytes for v in memory.vertices)
    by_category = opened.compilation.memoryByCategory()
    assert np.array_equal(by_category["vertexCode"], wanted.category("Vertex Code"))
    with pytest.raises(AttributeError, match="no memory category 'nothing'"):
        _ = opened.compilation.tiles[0].memory.category.nothing


def test_programs(opened):
    """The tree: a loop of a compute set and a copy; visitors see each by its type."""
    (root,) = opened.compilation.controlPrograms
    assert opened.compilation.functionPrograms == []
    types = [program.type.name for program in opened.compilation.programs]
    assert sorted(types) == ["DoExchange", "OnTileExecute", "Repeat", "Sequence", "Sequence"]

    class Names(pva.ProgramVisitor):
        def __init__(self):
            super().__init__()
            self.seen = []

        def visitOnTileExecute(self, program):
            self.seen.append(program.computeset.name)

        def visitDoExchange(self, program):
            self.seen.append(program.name)

    visitor = Names()
    root.accept(visitor)
    assert visitor.seen == ["layer1/sums/rows", "layer1/gather"]
    execute = next(
        p for p in opened.compilation.programs if p.type is pva.Program.Type.OnTileExecute
    )
    assert {v.name for v in execute.vars} == {"weights/matrix", "layer1/totals"}
    assert execute.estimatedCyclesByTile.max() > 0
    assert execute.codeBytesByTile.sum() > 0
    assert root.controlCodeByTile.tolist() == [16] * 8  # two steps of two instructions
    with pytest.raises(AttributeError, match="a Sequence has no computeset"):
        _ = root.computeset


def test_compute_sets(opened, engine):
    """Vertices by type, and how many each tile has."""
    (compute_set,) = opened.compilation.computeSets
    (vertices,) = compute_set.vertices
    assert vertices.type.name.endswith("RowSum")
    assert vertices.type.size > 0
    assert vertices.countByTile.tolist() == [3] * 8
    assert compute_set.estimatedCyclesByTile.max() == engine.report().steps.compute[0, 0]


def test_liveness_and_variables(opened):
    """Variables of a step add up to its bytes; those of a tile to the tile's."""
    steps = opened.compilation.livenessProgramSteps
    assert len(steps) == 2
    for number, step in enumerate(steps):
        memory = step.notAlwaysLiveMemory
        assert memory.bytes == sum(v.size for v in memory.variables)
        per_tile = [step.notAlwaysLiveMemoryForTile(t).bytes for t in range(8)]
        assert sum(per_tile) == memory.bytes == step.notAlwaysLiveMemoryForIpu(0).bytes
        assert step.program.step == number
    assert "layer1/totals" in [v.name for v in steps[1].notAlwaysLiveMemory.variables]
    always = opened.compilation.alwaysLiveVariables
    assert sum(v.size for v in always) == opened.compilation.memoryByTile()["alwaysLive"].sum()
    of_tile = opened.compilation.alwaysLiveVariablesForTile(3)
    assert sum(v.size for v in of_tile) == opened.compilation.tiles[3].memory.alwaysLiveBytes
    lowered = opened.compilation.loweredVariables
    columns = lowered.columns()
    assert [v.bytes for v in lowered.allBriefVars] == columns["bytes"].tolist()
    mine = lowered.forTile(2)
    assert {v.tileId for v in mine} == {2}
    totals = next(v for v in mine if v.name == "layer1/totals")
    assert not totals.alwaysLive
    assert [(s.start, s.end) for s in totals.equivalenceClass.steps] == [(0, 2)]
    assert totals.unloweredVar.shape == (24,)


def test_execution(opened, engine):
    """Steps in order, their chips, runs and blocks: cycles are the engine's."""
    execution, total = opened.execution, engine.report().total_cycles
    assert execution.totalCycles == execution.totalCycles.total == total
    assert len(execution.steps) == 6
    assert sum(step.ipus[0].cycles for step in execution.steps) == total
    assert execution.cyclesByStep().sum() == total
    assert execution.steps[-1].ipus[0].activeCycles.cyclesTo.max == total
    first = execution.steps[0].ipus[0]
    assert 0 < first.tileBalance <= first.activeTileBalance <= 1
    assert first.activeTiles == 8
    assert execution.steps[1].ipus[0].dataIn > 0
    assert execution.steps[0].computeSets[0].name == "layer1/sums/rows"
    (run,) = execution.runs
    assert len(run.steps) == 6
    assert run.cycles == total
    assert sum(b.cyclesTo - b.cyclesFrom for b in execution.blocks(3)) == total
    assert sum(execution.cyclesByTypeName().values()) == total


def test_operations_and_debug_contexts(opened):
    """Steps are grouped by name; contexts know their parents and their line."""
    analysis = pva.OperationAnalysis(opened)
    assert [o.name for o in analysis.operations] == ["main/layer1/sums", "main/layer1"]
    operation = analysis.operations[0]
    assert (operation.firstStepIndex, operation.lastStepIndex) == (0, 0)
    assert [p.name for p in operation.programs()] == ["layer1/sums/rows"]
    context = operation.debugContext
    assert context.location.fileName.endswith("programs.py")
    assert context.parents[0].name == "main/layer1"
    assert '"layer": "program"' in context.json
    columns = analysis.columns()
    assert columns["n_flops"][0] > 0
    assert 0 < columns["efficiency"][0] <= columns["roofline"][0] <= 1
    assert columns["bound"][0] in ("compute", "exchange", "sync", "host")


def test_the_question_people_ask(opened):
    """The largest variables at a tile's peak, largest first, no more than asked for."""
    result = opened.compilation.largestLiveAtPeak(0, 2)
    assert len(result) == 2
    assert result[0].size >= result[1].size


def test_errors(report_file, engine, tmp_path):
    """No execution, no debug file, no pandas: each says what to do."""
    with pytest.raises(FileLoadError, match="no debug information"):
        pva.openReport(report_file, tmp_path / "debug.cbor")
    nothing = pva.openReport(write_report(tmp_path, engine.executable))
    with pytest.raises(MissingProfileData, match="has no execution"):
        _ = nothing.execution


def test_frames(opened, monkeypatch):
    """A table is a data frame where pandas is installed, and a readable error where it is not."""
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingProfileData, match="pandas is not installed"):
        opened.frame("steps")


def test_lists_print_a_few_items(opened):
    """listPrintLength limits what a list prints."""
    opened.listPrintLength(2)
    try:
        assert repr(opened.compilation.tiles) == "[Tile(0), Tile(1), …]"
        assert opened.compilation.tiles[-1].id == 7
        assert [t.id for t in opened.compilation.tiles[2:4]] == [2, 3]
        with pytest.raises(IndexError):
            _ = opened.compilation.tiles[8]
    finally:
        opened.listPrintLength(10)


def test_replicas_multiply_the_target(tmp_path):
    """Sizes of a replicated program count all replicas; its tiles are those of one."""
    import tremula as tr
    from tremula.vision.report.write import report_of_engine

    graph = tr.Graph(tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=2).create_device(), 2)
    x = graph.add_variable(tr.FLOAT, [4], "x", mapping="linear")
    graph.create_host_read("x", x)
    engine = tr.Engine(graph, [tr.WriteUndef(x)]).load()
    engine.run()
    target = pva.openReport(report_of_engine(engine, tmp_path)).compilation.target
    assert (target.numReplicas, target.ipusPerReplica, target.numIPUs) == (2, 1, 2)
    assert (target.tilesPerReplica, target.numTiles) == (2, 4)


@pytest.mark.slow
def test_an_engine_gives_pvas_report_without_a_file(tmp_path):
    """engine.report() converts to what openReport gives; C++'s calls work, and nothing is left."""
    engine = summing_engine().load()
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        n_steps = reader.n_entries
    report = engine.getReport()
    assert len(report.execution().steps) == len(report.execution.steps) == n_steps
    columns = engine.report()
    assert columns.execution.steps[0].ipus[0].cycles == report.execution.steps[0].ipus[0].cycles
    assert columns.compilation.target.numTiles == report.compilation().target.numTiles
    folder = Path(report.reader.path).parent
    assert folder.parent == Path(tempfile.gettempdir())
    del report
    gc.collect()
    assert not folder.exists()
