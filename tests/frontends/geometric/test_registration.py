"""Models of PyG compile with `import poptorch` alone, with functions that were taken before it."""

from tests.scripts import run_code

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
