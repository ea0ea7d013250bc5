"""GraphTransformer: types converted, weights made constants, nodes prepared for training."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import popart


def model_of(values):
    """x + w as a model, w an initialiser; and an input that nothing reads."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(values), "x")
    builder.addInputTensor("FLOAT", [1], "unused")
    w = builder.addInitializedInputTensor(values, "w")
    builder.addOutputTensor(builder.aiOnnx.add([x, w]))
    return builder.getModelProto()


def transformed(proto, method, *args, **kwargs):
    transformer = popart.GraphTransformer(proto)
    getattr(transformer, method)(*args, **kwargs)
    return onnx.load_model_from_string(transformer.getModelProto())


@pytest.mark.parametrize(
    ("method", "source", "target"),
    [
        ("convertFloatsToHalfs", np.float32, np.float16),
        ("convertDoublesToFloats", np.float64, np.float32),
        ("convertDoublesToHalfs", np.float64, np.float16),
        ("convertINT64ToINT32", np.int64, np.int32),
        ("convertINT8ToINT32", np.int8, np.int32),
        ("convertUINT16ToINT32", np.uint16, np.int32),
    ],
)
def test_types(method, source, target):
    """Weights, inputs and outputs change their type, and keep their values."""
    values = np.array([1, 2, 3], source)
    model = transformed(model_of(values), method)
    weight = numpy_helper.to_array(model.graph.initializer[0])
    assert weight.dtype == target
    np.testing.assert_array_equal(weight, values.astype(target))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    named = [model.graph.input[0], *model.graph.output]
    assert {v.type.tensor_type.elem_type for v in named} == {kind}


def test_whole_numbers_that_do_not_fit():
    """A 64-bit number without a 32-bit one is an error, unless it may be clipped."""
    proto = model_of(np.array([2**40, -5], np.int64))
    with pytest.raises(popart.popart_exception, match="do not fit INT32"):
        transformed(proto, "convertINT64ToINT32")
    model = transformed(proto, "convertINT64ToINT32", clip=True)
    result = numpy_helper.to_array(model.graph.initializer[0])
    assert result.tolist() == [2**31 - 1, -5]


def test_shapes_stay_wide():
    """Operands that ONNX reads as shapes stay 64-bit integers."""
    builder = popart.Builder()
    x = builder.addInputTensor("INT64", [2, 3], "x")
    shape = builder.aiOnnx.constant(np.array([3, 2], np.int64))
    builder.addOutputTensor(builder.aiOnnx.reshape([x, shape]))
    model = transformed(builder.getModelProto(), "convertINT64ToINT32")
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.INT32
    assert model.graph.node[0].attribute[0].t.data_type == TensorProto.INT64
    onnx.checker.check_model(model, full_check=True)


def test_unused_inputs_and_constants():
    """Inputs that nothing reads go; weights become constants."""
    proto = model_of(np.ones(2, np.float32))
    assert [v.name for v in transformed(proto, "removeUnusedInputs").graph.input] == ["x"]
    model = transformed(proto, "convertInitializersToConstants", ["w"])
    assert not model.graph.initializer
    assert [n.op_type for n in model.graph.node] == ["Constant", "Add"]
    with pytest.raises(popart.popart_exception, match="'v' not in the model"):
        transformed(proto, "convertInitializersToConstants", ["v"])


def test_norms_that_train():
    """A norm gets the outputs that training updates its statistics with."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 4, 4])
    weights = [builder.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(4)]
    (y,) = builder.aiOnnx.batchnormalization([x, *weights], 1)
    builder.addOutputTensor(y)
    model = transformed(builder.getModelProto(), "prepareNodesForTraining")
    assert len(model.graph.node[0].output) == 5
