"""The table of quantities, and sums that have one name in several views."""

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import RowSum, summing_engine
from tests.vision.report.test_timeline import pipelined_engine
from tremula.base.wording import counted, short_source
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.quantities import QUANTITIES, quantity_facts
from tremula.vision.analysis.stages import stage_facts
from tremula.vision.analysis.summary import execution_totals, memory_totals, summary, tree
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.page_data.memory import liveness_pack, tiles_pack
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.page_data.time import steps_pack, tree_pack
from tremula.vision.report.reader import open_report
from tremula.vision.report.time_totals import PARTS, PHASES
from tremula.vision.report.write import report_of_engine

UNITS = {"cycles", "bytes", "count", "share", "seconds", "joules", "ratio", "name"}


def replicated_engine() -> tr.Engine:
    """Two replicas of a loop."""
    graph = tr.Graph(
        tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=2).create_device(), replication_factor=2
    )
    rows = graph.add_variable(tr.FLOAT, [4, 8], "rows", mapping="linear")
    totals = graph.add_variable(tr.FLOAT, [4], "totals", mapping="linear")
    graph.set_initial_value(rows, 1.0)
    sums = graph.add_compute_set("layer/sums")
    graph.add_vertices(sums, RowSum, {"row": rows, "total": totals}, tiles=np.arange(4) % 2)
    return tr.Engine(graph, [tr.Repeat(5, tr.Execute(sums))], {"tremula.threads": 1}).load()


ENGINES = {
    "a loop": lambda: summing_engine().load(),
    "two chips": lambda: summing_engine(n_ipus=2, n_tiles=4).load(),
    "a pipeline": lambda: pipelined_engine(3),
    "replicas": replicated_engine,
}


@pytest.mark.parametrize("name", ENGINES)
def test_one_name_has_one_value(name, tmp_path):
    """Busy cycles, phases, the critical path and temporary bytes are the same in all views."""
    engine = ENGINES[name]()
    for _ in range(2):
        engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert_cycles(reader)
        assert_bytes(reader)
        text = text_of_view("summary", summary(reader), 0)
        assert "(s)" not in text
        assert (" of all chips)" in text) == (reader.n_ipus > 1)


def assert_cycles(reader):
    """Sums of all views; means and shares follow from them."""
    ipus, total = reader.table("ipus"), reader.info["total_cycles"]
    busy = {phase: int(ipus[phase].sum()) for phase in PHASES}
    operations = operation_columns(reader)
    _, steps = unpack_pack(steps_pack(reader))
    _, nodes = unpack_pack(tree_pack(reader))
    roots = nodes["parent"] < 0
    for phase, cycles in busy.items():
        assert operations[phase].sum() == steps[f"busy_{phase}"].sum() == cycles
        assert nodes[f"busy_{phase}"][roots].sum() == cycles
    everything = sum(busy.values())
    assert operations["busy_cycles"].sum() == nodes["busy_cycles"][roots].sum() == everything
    assert sum(n["busy_cycles"] for n in tree(reader) if n["parent"] < 0) == everything
    assert operations["path_cycles"].sum() == nodes["path_cycles"][roots].sum() == total
    means = execution_totals(reader)
    assert sum(means[part] for part in PARTS) == total
    for phase, cycles in busy.items():
        assert abs(means[phase] - cycles / reader.n_ipus) < 1
    if reader.n_ipus == 1:
        assert operations["busy_cycles"].tolist() == operations["path_cycles"].tolist()
    stages = stage_facts(reader)
    if stages["stages"]:
        assert stages["waiting"] == ipus["waiting"].sum()
        mine = steps["stage"] >= 0
        assert sum(s["busy_cycles"] for s in stages["stages"]) == steps["busy_cycles"][mine].sum()


def assert_bytes(reader):
    """Temporary bytes at tile peaks are at least those of the largest step."""
    _, tiles = unpack_pack(tiles_pack(reader))
    facts, live = unpack_pack(liveness_pack(reader))
    memory = memory_totals(reader)
    assert memory["temporary"] == tiles["temporary"].sum() == tiles["category_temporary"].sum()
    assert memory["always_live"] == facts["always_live"] == tiles["always_live"].sum()
    assert live["temporary"].max() <= memory["temporary"]
    categories = reader.table("categories")
    assert categories["temporary"].sum() == memory["temporary"]


def test_the_table_is_complete():
    """Every quantity has a title, a unit, a sentence; no two share a title."""
    titles = [quantity.title for quantity in QUANTITIES.values()]
    assert len(set(titles)) == len(titles)
    for key, quantity in QUANTITIES.items():
        assert quantity.unit in UNITS, key
        assert quantity.definition.endswith("."), key
        assert quantity.of or quantity.unit in ("count", "name"), key
    assert quantity_facts()["busy_cycles"]["title"] == "Busy cycles"


def test_words(tmp_path):
    """Numbers agree with nouns, library folders are left out, tiles are named with their chip."""
    assert counted(1, "tile") == "1 tile"
    assert (counted(2, "vertex"), counted(0, "copy")) == ("2 vertices", "0 copies")
    assert short_source("/a/lib/python3.11/site-packages/torch/nn.py:3") == "torch/nn.py:3"
    assert short_source("net.py:3") == "net.py:3"
    engine = pipelined_engine(2)
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert reader.tile_name(3) == "chip 1, tile 1"
        said = " ".join(f"{one['title']} {one['text']}" for one in insights(reader))
        assert "(s)" not in said
        assert "site-packages" not in said
