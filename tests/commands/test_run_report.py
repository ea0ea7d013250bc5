"""`tremula run --report`: programs of every front end leave a report, and save one on request."""

import pytest

from tremula.commands import main
from tremula.vision.pva.report import openReport

POPXL = """
import sys
import popxl, popxl.ops as ops, numpy as np
ir = popxl.Ir()
with ir.main_graph:
    x = popxl.h2d_stream((2, 2), popxl.float32, name="x")
    y = ops.host_load(x) @ popxl.variable(np.ones((2, 2), np.float32))
    out = popxl.d2h_stream(y.shape, y.dtype)
    ops.host_store(out, y)
with popxl.Session(ir, "cpu") as program:
    for _ in range(2):
        program.run({x: np.ones((2, 2), np.float32)})
"""

POPART = """
import sys
import popart, numpy as np
builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
y = builder.aiOnnx.matmul([x, builder.addInitializedInputTensor(np.ones((2, 2), np.float32))])
builder.addOutputTensor(y)
device = popart.DeviceManager().createCpuDevice()
program = popart.InferenceSession(
    builder.getModelProto(), popart.DataFlow(1, {y: popart.AnchorReturnType("All")}), device
)
program.prepareDevice()
anchors = program.initAnchorArrays()
for _ in range(2):
    program.run(popart.PyStepIO({x: np.ones((2, 2), np.float32)}, anchors))
"""

ONNX = """
import sys
import onnx, torch
from onnx import helper
from tremula.onnx import compile_model, import_model
values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 2]) for n in "xy"]
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", values[:1], values[1:])
program = compile_model(import_model(helper.make_model(graph)), {"x": torch.ones(2, 2)})
for _ in range(2):
    program(torch.ones(2, 2))
"""

KERAS = """
import sys
import numpy as np
from tremula.keras import ipu
import keras
with ipu.ipu_strategy.IPUStrategy().scope():
    program = keras.Sequential([keras.Input((2,), batch_size=2), keras.layers.Dense(1)])
    program.compile("sgd", "mse", steps_per_execution=1)
    program.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), batch_size=2, verbose=0)
"""

POPTORCH = """
import sys
import torch, poptorch
program = poptorch.inferenceModel(torch.nn.Linear(2, 2))
program(torch.ones(1, 2))
"""
SCRIPTS = {
    "popxl": (POPXL, "popxl"),
    "popart": (POPART, "inference"),
    "onnx": (ONNX, "onnx"),
    "keras": (KERAS, "train"),
    "poptorch": (POPTORCH, "inference"),
}
SAVES = "program.save_report(sys.argv[1])\n"


@pytest.mark.parametrize("front_end", SCRIPTS)
def test_every_front_end_leaves_a_report(front_end, tmp_path, capsys):
    """The first run leaves a report under the program's name; `save_report` writes another."""
    text, name = SCRIPTS[front_end]
    path = tmp_path / "script.py"
    path.write_text(text + SAVES)
    folder, own = tmp_path / "reports", tmp_path / "own"
    assert main(["run", "--report", str(folder), str(path), str(own)]) == 0
    expected = folder / name / "profile.pop"
    assert f"report: {expected}" in capsys.readouterr().err
    for file in (expected, own / "profile.pop"):
        report = openReport(file)
        assert report.compilation.graph.numVertices > 0
        assert report.execution.totalCycles > 0
    assert (own / "profile.txt").exists()


def test_a_program_without_a_report_goes_on(tmp_path, capsys, logged):
    """What tiles cannot hold is a warning, the script runs to its end, and the command says so."""
    path = tmp_path / "script.py"
    path.write_text(
        ONNX.replace("compile_model(", "compile_model(n_tiles=1, imported=")
        .replace('), {"x"', '), inputs={"x"')
        .replace("[2, 2]", "[400, 400]")
        .replace("2, 2", "400, 400")
    )
    assert main(["run", "--report", str(tmp_path / "reports"), str(path)]) == 0
    assert "no report of onnx" in logged.text
    assert "says why its programs have none" in capsys.readouterr().err
