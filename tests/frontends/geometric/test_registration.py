"""Models of PyG compile with `import poptorch` alone, with functions that were taken before it."""

from types import SimpleNamespace

import torch_geometric

from tests.scripts import run_code
from tremula.frontends.geometric import pyg_lib_fallbacks

SCRIPT = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import knn

class Model(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, data):
        return self.op(data.x, data.x, 3)

model = Model(knn)
import sys
import poptorch
assert "tremula.frontends.geometric" not in sys.modules
x = torch.tensor([[0.0], [1.0], [5.0], [9.0]])
print(poptorch.inferenceModel(model)(Data(x=x)).tolist())
print(knn(x, x, 1).tolist())
"""


def test_importing_poptorch_registers_overrides(tmp_path):
    """Where PyG is loaded, a model takes its data and its functions have static shapes."""
    code, printed = run_code(SCRIPT, tmp_path)
    assert code == 0, printed
    found, outside = printed.splitlines()
    rows = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert found == str([rows, [0, 1, 2, 1, 0, 2, 2, 3, 1, 3, 2, 1]])
    assert outside == "[[0, 1, 2, 3], [0, 1, 2, 3]]"


def test_pyg_2_7_gets_all_fallbacks(monkeypatch):
    """Without flags per function, everything that `torch_cluster` would provide is installed."""
    installed = set()
    library = SimpleNamespace(
        WITH_TORCH_CLUSTER=False, WITH_TORCH_SPLINE_CONV=False,
        WITH_PYG_LIB=True, WITH_TORCH_SPARSE=True, WITH_METIS=True,
    )  # fmt: skip
    monkeypatch.setattr(torch_geometric, "typing", library)
    monkeypatch.setattr(
        pyg_lib_fallbacks, "install", lambda owner, name, _: installed.add((owner.__name__, name))
    )
    monkeypatch.setattr(
        pyg_lib_fallbacks, "install_in_place", lambda _, names: installed.update(names)
    )
    pyg_lib_fallbacks.install_fallbacks.__wrapped__()
    assert installed >= {"knn", "radius", "nearest", "fps", "voxel_grid", "graclus"}
    convs = "torch_geometric.nn.conv"
    names = {("gravnet_conv", "knn"), ("x_conv", "knn_graph"), ("spline_conv", "spline_basis")}
    assert installed >= {(f"{convs}.{module}", name) for module, name in names}
    assert installed >= {("XConv", "forward"), ("SplineConv", "forward")}
