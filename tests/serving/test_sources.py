"""Programs from files: ONNX models, PopTorch's and Keras' exports; what is none is told."""

import numpy as np
import pytest
import torch

import poptorch
from tremula.base.errors import FileLoadError, InvalidOption
from tremula.serving.sources import program_of_file, program_of_poptorch


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(6.0).reshape(2, 3))
            self.layer.bias.copy_(torch.tensor([1.0, -1.0]))

    def forward(self, rows):
        return self.layer(rows)


ROWS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], np.float32)
RESULT = ROWS @ np.arange(6.0).reshape(2, 3).T + [1, -1]


def checked(program, platform, names):
    assert (program.platform, program.batch_size) == (platform, 4)
    result = [program.inputs[0].name, program.outputs[0].name]
    assert result == names
    assert program.inputs[0].shape == (3,)
    assert np.allclose(program.checked_run([ROWS])[0], RESULT)


def onnx_model(path, first="rows", width=3):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "affine",
        [helper.make_tensor_value_info("x", kind, [first, width])],
        [helper.make_tensor_value_info("y", kind, [first, 2])],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.array([1, -1], np.float32), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def test_an_onnx_model_with_an_open_batch(tmp_path):
    """The batch is what was asked for, names are the model's."""
    program = program_of_file(onnx_model(tmp_path / "affine.onnx"), batch_size=4)
    assert program.name == "affine"
    checked(program, "tremula_onnx", ["x", "y"])


def test_an_onnx_model_with_a_fixed_batch(tmp_path):
    """Its own batch holds; another one is refused."""
    path = onnx_model(tmp_path / "affine.onnx", first=4)
    checked(program_of_file(path), "tremula_onnx", ["x", "y"])
    with pytest.raises(InvalidOption, match="made for batches of 4, not 3"):
        program_of_file(path, batch_size=3)


def test_open_sizes_are_refused(tmp_path):
    """A size other than the batch must be fixed."""
    with pytest.raises(InvalidOption, match=r"'x' has the shape .*: sizes other than the batch"):
        program_of_file(onnx_model(tmp_path / "wide.onnx", width="wide"), batch_size=4)


@pytest.mark.slow
def test_a_poptorch_model_and_its_file(tmp_path):
    """A model is served as it is; its file only if it is trusted, since reading it can run code."""
    model = poptorch.inferenceModel(Affine())
    checked(program_of_poptorch(model, {"rows": ROWS}, name="affine"), "tremula_poptorch",
            ["rows", "output0"])  # fmt: skip
    path = tmp_path / "affine.poptorch"
    model.save(str(path))
    with pytest.raises(InvalidOption, match=r"can run code\.\n  try: add --trust"):
        program_of_file(path)
    checked(program_of_file(path, trusts_file=True), "tremula_poptorch", ["rows", "output0"])
    with pytest.raises(InvalidOption, match="compiled for its batch size"):
        program_of_file(path, batch_size=8)


def test_a_model_for_training_is_refused():
    """Only inference models are served."""
    model = poptorch.trainingModel(Affine(), optimizer=torch.optim.SGD(Affine().parameters(), 0.1))
    with pytest.raises(InvalidOption, match="model for training"):
        program_of_poptorch(model, {"rows": ROWS}, name="affine")


@pytest.mark.slow
def test_a_keras_export(tmp_path):
    """A folder of export_for_ipu_serving is served under the names of its layers."""
    ipu = pytest.importorskip("tremula.keras").ipu
    import keras  # after tremula.keras, which chooses its backend

    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input((3,), batch_size=4, name="x")
        model = keras.Model(inputs, keras.layers.Dense(2, name="y")(inputs))
        model.layers[-1].set_weights(
            [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.array([1, -1], np.float32)]
        )
        model.export_for_ipu_serving(tmp_path / "affine", batch_size=4, tiles=False)
    program = program_of_file(tmp_path / "affine")
    assert np.allclose(program.checked_run([ROWS])[0], RESULT)
    assert (program.platform, program.batch_size) == ("tremula_keras", 4)


def test_files_that_hold_no_program(tmp_path):
    """A missing file and one of another kind say what can be served."""
    with pytest.raises(FileLoadError, match="there is no file"):
        program_of_file(tmp_path / "none.onnx")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(FileLoadError, match=r"is not a program: .*\n  try: serve an \.onnx file"):
        program_of_file(tmp_path / "text")
