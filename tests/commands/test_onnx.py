"""`tremula run model.onnx`, `tremula profile` and `tremula onnx-check`."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from tremula.commands import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a small model, in which commands run."""
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32) * 2, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "small", [x], [y], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([[1, -1, 2]], np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_takes_files_and_writes_outputs(folder, capsys):
    """Inputs by order or by name; outputs are shown, and kept if asked for."""
    assert main(["run", "m.onnx", "--input", "x.npy", "--output", "y.npz"]) == 0
    printed = capsys.readouterr().out
    assert "input  x: float[1, 3], x.npy" in printed
    assert "output y: float32[1, 3] = 2, 0, 4" in printed
    assert np.load(folder / "y.npz")["y"].tolist() == [[2, 0, 4]]
    assert main(["run", "m.onnx", "--input", "x=x.npy", "--tiles"]) == 0
    assert "= 2, 0, 4" in capsys.readouterr().out


def test_run_draws_random_inputs(folder, capsys):
    """Open sizes are 1 unless a shape is given."""
    assert main(["run", "m.onnx", "--host", "plain"]) == 0
    assert "x: float[1, 3], random" in capsys.readouterr().out
    assert main(["run", "m.onnx", "--shape", "x=4,3", "--seed", "7"]) == 0
    assert "float32[4, 3]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run", "none.onnx"], "there is no file 'none.onnx'"),
        (["run", "m.onnx", "--input", "z=x.npy"], "no input 'z'"),
        (["run", "m.onnx", "--input", "gone.npy"], "there is no file 'gone.npy'"),
        (["run", "m.onnx", "--input", "m.onnx"], "not a NumPy array"),
        (["run", "m.onnx", "--shape", "x=a"], "cannot read --shape"),
        (["run", "m.onnx", "--shape", "x=999999,999999"], "too large"),
        (["profile", "x.npy"], "is not an ONNX model"),
        (["onnx-check", "x.npy"], "is not an ONNX model"),
    ],
)
def test_wrong_arguments(folder, capsys, arguments, error):
    """Each is one line that says what is wrong."""
    assert main(arguments) != 0
    assert error in capsys.readouterr().err


def test_a_profile_that_fails_leaves_no_folder(folder, capsys):
    """The folder named after the model is made when there is something to write."""
    (folder / "broken.onnx").write_bytes(b"")
    assert main(["profile", "broken.onnx"]) == 1
    assert "has no graph" in capsys.readouterr().err
    assert not (folder / "broken-profile").exists()


def test_profile_costs_a_model(folder, capsys):
    """Cycles and memory are printed; the report is for the analyser."""
    assert main(["profile", "m.onnx", "--shape", "x=2,3", "--n-tiles", "4"]) == 0
    printed = capsys.readouterr().out
    assert "cycles" in printed
    assert "Memory: fits" in printed
    assert (folder / "m-profile" / "profile.pop").is_file()
    assert main(["report", "m-profile", "summary"]) == 0


def test_check_names_what_has_no_lowering(folder, capsys):
    """Operators are listed; operations that tiles lack are named with their nodes."""
    assert main(["onnx-check", "m.onnx"]) == 0
    printed = capsys.readouterr().out
    assert "MatMul" in printed
    assert "Everything has a lowering to tiles." in printed
    node = helper.make_node("NonZero", ["h"], ["y"], name="places")
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph(nodes, "places", [x], [y])
    imports = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=imports), folder / "places.onnx")
    assert main(["onnx-check", "places.onnx"]) == 1
