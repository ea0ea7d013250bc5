"""Operations of a report: flops, shares of the peak and the roofline, and what bounds them."""

from pathlib import Path

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import summing_engine
from tremula.poplibs import popops
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.summary import operations
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import report_of_engine

OLD_REPORT = Path(__file__).parents[1] / "report" / "data" / "report-1.0.pop"
N_TILES, N_ROWS, N_COLUMNS, N_TIMES = 8, 24, 16, 3


@pytest.fixture
def reader(tmp_path):
    engine = summing_engine(N_TILES, N_ROWS, N_COLUMNS, N_TIMES).load()
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        yield reader


def test_flops_against_the_peak(reader):
    """Additions of floats are measured against the vector unit's peak on all tiles."""
    result = operation_columns(reader)
    at = int(result["n_flops"].argmax())
    cycles, n_flops = result["cycles"][at], N_TIMES * N_ROWS * (N_COLUMNS - 1)
    assert result["n_flops"].sum() == result["n_flops"][at] == n_flops
    assert result["flops_per_cycle"][at] == pytest.approx(n_flops / cycles)
    peak = reader.target["flops_per_cycle_vector_float"] * N_TILES
    assert result["efficiency"][at] == pytest.approx(n_flops / peak / cycles)
    assert result["intensity"][at] == pytest.approx(n_flops / result["bytes_moved"][at])


def test_roofline_is_the_longer_of_both(reader):
    """An operation that only moves data has a share of the roofline, and none of the peak."""
    result = operation_columns(reader)
    moves = int(((result["n_flops"] == 0) & (result["bytes_moved"] > 0)).argmax())
    rate = reader.target["exchange_bytes_per_cycle"] * N_TILES
    wanted = result["bytes_moved"][moves] / rate / result["cycles"][moves]
    assert result["roofline"][moves] == pytest.approx(wanted)
    assert result["efficiency"][moves] == result["intensity"][moves] == 0


def test_bounds(tmp_path):
    """A transfer with the host is bound by it; a long sum on one tile by compute."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    x = graph.add_variable(tr.FLOAT, [4000], "x", mapping=0)
    stream = graph.add_host_to_device_fifo("in", tr.FLOAT, 4000)
    sequence = tr.Sequence([tr.Copy(stream, x)])
    popops.exp(graph, x, sequence, "exponentials")
    engine = tr.Engine(graph, sequence).load()
    engine.connect_stream("in", np.zeros(4000, np.float32))
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        result = operation_columns(reader)
    assert sorted(result["bound"]) == ["compute", "host"]
    assert result["n_flops"].tolist()[result["bound"].index("compute")] == 4000


def test_text(reader):
    """`tremula report ops` names flops, shares and bounds."""
    text = text_of_view("ops", operations(reader), 0)
    for head in ("flops/cycle", "of peak", "of roofline", "flops/byte", "bound by"):
        assert head in text.splitlines()[0]
    assert f"{N_TIMES * N_ROWS * (N_COLUMNS - 1):,}" in text
