"""Layers of PyG: a sample in every run, all of them in `make test-wide`; the table and its page."""

import re
from pathlib import Path

import pytest
from torch_geometric.nn import aggr, conv, dense, norm, pool

from tests.frontends.geometric import layer_sweep
from tests.frontends.geometric.layer_sweep import FINE, Row, check_layer, page
from tests.frontends.geometric.layer_table import CASES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pyg.md"
STATIC = [case for case in CASES if case.make is not None]
NO_LAYERS = {
    "MessagePassing", "Aggregation", "KNNIndex", "L2KNNIndex", "MIPSKNNIndex",
    "ApproxL2KNNIndex", "ApproxMIPSKNNIndex", "fps", "knn", "knn_graph", "radius",
    "radius_graph", "nearest",
}  # fmt: skip


def case_of(name):
    return next(case for case in CASES if case.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GATConv", "GCNConv", "RGCNConv", "GPSConv", "HeteroBatchNorm"])
def test_layers_train_as_in_pyg_on_the_host(name):
    """Outputs, losses and weights of some steps equal those of plain PyG."""
    check_layer(case_of(name), on_tiles=False)


@pytest.mark.slow
def test_a_layer_trains_as_in_pyg_on_tiles():
    """Outputs, losses and weights on tiles, vertex by vertex, equal those of plain PyG."""
    check_layer(case_of("GINConv"), on_tiles=True)


@pytest.mark.wide
@pytest.mark.parametrize("on_tiles", [False, True], ids=["host", "tiles"])
@pytest.mark.parametrize("case", STATIC, ids=lambda case: case.name)
def test_every_layer_trains_as_in_pyg(case, on_tiles):
    """All layers that can be static."""
    check_layer(case, on_tiles=on_tiles)


def test_the_table_lists_every_layer():
    """Each convolution, aggregation, normalisation and pooling that PyG has."""
    names = {name for room in (conv, aggr, norm, pool, dense) for name in room.__all__}
    assert {case.name for case in CASES} >= names - NO_LAYERS


def test_the_page_is_made_from_the_table():
    """Every layer has its row; layers that cannot be static say why."""
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {case.name for case in CASES}
    rows = [Row("GINConv", FINE, "no: text"), Row("PANConv", "sparse", "sparse")]
    text = page(rows)
    assert "| `GINConv` |  | yes | no | text |" in text
    assert "| `PANConv` |  | no | no | sparse |" in text


def test_a_wrong_result_is_found():
    """A difference beyond rounding raises and is a row of the page."""
    case = case_of("Linear")
    wrong = type(case)("Linear", "dense", case.make, case.inputs, "", lambda layer, x: _noisy(x))
    assert layer_sweep._outcome(wrong, on_tiles=False).startswith("no: outputs of step 0 differ")


_calls = []


def _noisy(x):
    _calls.append(None)
    return x + len(_calls)
