"""Scripts that load a compiled library of custom operations run with a Python file in its place."""

import ctypes

import numpy as np
import pytest
import torch

import poptorch
import tremula as tr
from tremula.base.errors import FileLoadError, PoplarError

CODELET = """
#include <poplar/Vertex.hpp>
using namespace poplar;
class Blend : public Vertex {
public:
  Input<Vector<float>> a, b;
  Input<float> weight;
  Output<Vector<float>> out;
  const float shift;
  bool compute() {
    for (unsigned i = 0; i < a.size(); ++i) out[i] = a[i] + weight * b[i] + shift;
    return true;
  }
};
"""
OPERATIONS = """
import tremula as tr
tr.codelet_operation(
    "Blend", "{domain}", 1, codelets="blend.cpp", vertex="Blend",
    inputs=["a", "b", "weight"], outputs={{"out": 0}}, state={{"shift": "shift"}},
)
"""


class Model(torch.nn.Module):
    def __init__(self, domain):
        super().__init__()
        self.domain = domain

    def forward(self, a, b, weight):
        return poptorch.custom_op(
            [a, b, weight], "Blend", self.domain, 1, example_outputs=[a], attributes={"shift": 0.5}
        )[0]


def _folder(tmp_path, file, domain):
    (tmp_path / "blend.cpp").write_text(CODELET)
    (tmp_path / file).write_text(OPERATIONS.format(domain=domain))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("how", ["LoadLibrary", "variable", "load_operations"])
def test_an_operation_is_found_by_its_name(how, tmp_path, monkeypatch, gxx):
    """The script's own line, an environment variable, or a call registers it; numbers are right."""
    domain = f"test.{how}"
    folder = _folder(tmp_path, "blend_ops.py", domain)
    if how == "LoadLibrary":
        ctypes.cdll.LoadLibrary(str(folder / "libblend_ops.so"))
    elif how == "variable":
        monkeypatch.setenv("TREMULA_CUSTOM_OPS", str(folder / "blend_ops.py"))
    else:
        tr.load_operations(folder / "blend_ops.py")
    a, b = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)
    weight = torch.tensor(2.0)
    for on_tiles in (False, True) if how == "LoadLibrary" else (False,):
        options = poptorch.Options().useIpuModel(on_tiles)
        options.showCompilationProgressBar(False)
        result = poptorch.inferenceModel(Model(domain), options)(a, b, weight)
        np.testing.assert_allclose(result, a + 2 * b + 0.5)


def test_without_a_stand_in_a_library_is_missing(tmp_path):
    """ctypes raises what it raises; a file of operations that is not there is named."""
    with pytest.raises(OSError, match="libnowhere"):
        ctypes.cdll.LoadLibrary(str(tmp_path / "libnowhere.so"))
    with pytest.raises(FileLoadError, match=r"no file of operations(.|\n)*nowhere\.py beside it"):
        tr.load_operations(tmp_path / "libnowhere.so")


def test_the_number_of_operands_is_checked(tmp_path, gxx):
    """An operation that gets other operands than it was registered for says so."""
    operation = tr.codelet_operation(
        "Two", "test.two", codelets=CODELET, vertex="Blend", inputs=["a"], outputs={"out": 0}
    )
    with pytest.raises(PoplarError, match="registered for 1 operands"):
        operation.host([torch.ones(2), torch.ones(2)], {})
