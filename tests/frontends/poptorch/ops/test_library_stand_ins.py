"""Scripts that load a compiled library of custom operations run with a Python file in its place."""

import ctypes
import importlib

import numpy as np
import pytest
import torch

import poptorch
import tremula as tr
from tremula.base.errors import FileLoadError, PoplarError
from tremula.commands import main
from tremula.ir.ops.custom import registered

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


SOURCE = """// cppimport
const popart::OperatorIdentifier LeakyRelu = {"custom.ops", "LeakyRelu", 1};
const popart::OperatorIdentifier LeakyReluGrad = {"custom.ops", "LeakyReluGrad", 1};
static popart::OperatorIdentifier Other(popart::Domain::ai_graphcore, "Other", 2);
// OperatorIdentifier Old = {"custom.ops", "Old", 1};
"""


def test_torch_loads_stand_ins(tmp_path):
    """torch.ops.load_library runs the Python file, whose functions are those of the library."""
    (tmp_path / "made_ops.py").write_text("sizes = []\ndef setSize(n): sizes.append(n)\n")
    torch.ops.load_library(str(tmp_path / "libmade_ops.so"))
    library = ctypes.cdll.LoadLibrary(str(tmp_path / "libmade_ops.so"))
    library.setSize(3)
    assert library.sizes == [3]
    with pytest.raises(AttributeError, match="has no function 'setShape' that the script calls"):
        _ = library.setShape


@pytest.mark.parametrize("load", [torch.ops.load_library, ctypes.cdll.LoadLibrary])
def test_the_error_says_how_to_make_a_stand_in(load, tmp_path):
    """It names the operators of the sources beside the library, the file, and the command."""
    (tmp_path / "ops.cpp").write_text(SOURCE)
    library = tmp_path / "build" / "custom_ops.so"
    library.parent.mkdir()
    library.write_text("no library")
    with pytest.raises(OSError, match=r"LeakyRelu(.|\n)*custom_ops\.py(.|\n)*--template"):
        load(str(library))
    with pytest.raises(OSError, match="libsystem_none") as error:
        ctypes.cdll.LoadLibrary("libsystem_none.so.1")
    assert "template" not in str(error.value)


def test_templates_register_the_operators_of_sources(tmp_path, capsys):
    """Filled in, the printed file is a stand-in; gradients are functions, codelets are listed."""
    (tmp_path / "ops.cpp").write_text(SOURCE + CODELET)
    assert main(["codelets", "--template", str(tmp_path / "ops.cpp")]) == 0
    text = capsys.readouterr().out
    assert "'a', 'b', 'weight'], outputs={'out': 0}" in text
    assert "Old" not in text
    filled = text.replace(
        'raise NotImplementedError("LeakyRelu: compute it with PyTorch, or register a codelet")',
        "return [torch.where(inputs[0] < 0, inputs[0] * attributes['alpha'], inputs[0])]",
    )
    (tmp_path / "leaky.py").write_text(filled)
    torch.ops.load_library(str(tmp_path / "leaky.so"))
    assert registered("ai.graphcore::Other:2").gradient is None
    leaky = registered("custom.ops::LeakyRelu:1")
    assert leaky.gradient is not None
    (result,) = leaky.host([torch.tensor([-2.0, 2])], {"alpha": 0.5})
    assert result.tolist() == [-1, 2]


def test_modules_of_cppimport(tmp_path, monkeypatch):
    """A C++ module is the Python file beside it, or an error with advice."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_binding.cpp").write_text(SOURCE)
    importlib.import_module("cppimport.import_hook")
    cppimport = importlib.import_module("cppimport")
    with pytest.raises(ImportError, match=r"LeakyRelu(.|\n)*made_binding\.py(.|\n)*--template"):
        importlib.import_module("made_binding")
    with pytest.raises(ImportError, match=r"made_binding\.py"):
        cppimport.imp_from_filepath(str(tmp_path / "made_binding.cpp"))
    (tmp_path / "made_binding.py").write_text("value = 5\n")
    importlib.invalidate_caches()
    assert cppimport.imp("made_binding").value == 5
    assert cppimport.imp_from_filepath(str(tmp_path / "made_binding.cpp")).value == 5


def test_the_number_of_operands_is_checked(tmp_path, gxx):
    """An operation that gets other operands than it was registered for says so."""
    operation = tr.codelet_operation(
        "Two", "test.two", codelets=CODELET, vertex="Blend", inputs=["a"], outputs={"out": 0}
    )
    with pytest.raises(PoplarError, match="registered for 1 operands"):
        operation.host([torch.ones(2), torch.ones(2)], {})
