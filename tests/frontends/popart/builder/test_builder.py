"""Builder: ids, scopes, shapes while building, operators as methods, graphs inside operations."""

import numpy as np
import onnx
import pytest
from onnx import checker, numpy_helper, shape_inference

import popart
from tremula.frontends.popart.builder.graphcore_ops import graphcore_operators

FLOATS = popart.TensorInfo("FLOAT", [2, 3])


@pytest.fixture
def builder():
    return popart.Builder()


def test_ids(builder):
    """Ids are names with scopes before and numbers behind; a taken one gets `/1`, `/2`, …"""
    x = builder.addInputTensor(FLOATS)
    y = builder.addInputTensor(FLOATS)
    w = builder.addInitializedInputTensor(np.zeros((2, 3), np.float32), "w")
    add, again = builder.aiOnnx.add([x, y]), builder.aiOnnx.add([x, w])
    with builder.nameScope("a"), builder.nameScope("b"):
        inner, named = builder.aiOnnx.relu([add]), builder.aiOnnx.relu([add], "mine")
        assert builder.getNameScope("c") == "a/b/c"
    assert [x, y, w, add, again] == ["input", "input/1", "w", "Add:0", "Add:0/1"]
    assert [inner, named] == ["a/b/Relu:0", "a/b/mine:0"]
    sub = builder.createSubgraphBuilder()
    assert sub.addInputTensor(FLOATS) == "input/2"  # ids of graphs around are taken


def test_shapes_while_building(builder):
    """Every tensor has a shape and a type as soon as it exists, also behind computed shapes."""
    x = builder.addInputTensor("FLOAT", [2, 3, 8, 8])
    w = builder.addInitializedInputTensor(np.zeros((4, 3, 3, 3), np.float32))
    y = builder.aiOnnx.conv([x, w], dilations=[1, 1], pads=[1] * 4, strides=[2, 2])
    size = builder.aiOnnx.gather(
        [builder.aiOnnx.shape([y]), builder.aiOnnx.constant(np.array([0], np.int64))], axis=0
    )
    rest = builder.aiOnnx.constant(np.array([-1], np.int64))
    flat = builder.aiOnnx.reshape([y, builder.aiOnnx.concat([size, rest], axis=0)])
    left, right = builder.aiOnnx.split([flat], 2, axis=1)
    assert builder.getTensorShape(y) == [2, 4, 4, 4]
    assert builder.getTensorShape(flat) == [2, 64]
    assert builder.getTensorShape(left) == builder.getTensorShape(right) == [2, 32]
    half = builder.aiOnnx.cast([left], "FLOAT16")
    assert builder.getTensorDtypeString(half) == "float16"
    assert builder.getTensorDtypeString(builder.aiOnnx.shape([y])) == "int64"


def test_models_that_onnx_accepts(builder):
    """What is built passes ONNX's checker, and its shapes are those of ONNX's inference."""
    x = builder.addInputTensor(FLOATS, "x")
    w = builder.addInitializedInputTensor(np.ones((3, 4), np.float32), "w")
    y = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])], axis=1)
    builder.addOutputTensor(y)
    model = onnx.load_model_from_string(builder.getModelProto())
    checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.input] == ["x"]
    assert {o.domain: o.version for o in model.opset_import} == {"": 10}
    del model.graph.value_info[:]
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    for value in inferred:
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        assert builder.getTensorShape(value.name) == sizes
    assert builder.getInputTensorIds() == ["x", "w"]
    assert builder.getOutputTensorIds() == [y]
    assert builder.getValueTensorIds() == ["MatMul:0"]
    assert builder.getTrainableTensorIds() == ["w"]
    assert [builder.isInitializer(id) for id in ("w", "x")] == [True, False]


@pytest.mark.parametrize("version", [6, 10, 11, 13, 17, 21])
def test_every_operator_is_a_method(version):
    """Each operator of an op-set has a method with a signature that begins with its inputs."""
    opset = getattr(popart.Builder(), f"aiOnnxOpset{version}")
    everything = onnx.defs.get_all_schemas_with_history()
    names = {s.name for s in everything if s.domain == "" and s.since_version <= version}
    newest = {name: onnx.defs.get_schema(name, version) for name in names}
    special = {"And": "logical_and", "Or": "logical_or", "Not": "logical_not",
               "Xor": "logical_xor", "If": "logical_if"}  # fmt: skip
    for name, schema in newest.items():
        if not schema.deprecated:
            method = getattr(opset, special.get(name, name.lower()))
            assert method.__doc__
            assert method.__name__ in dir(opset)


def test_every_operator_of_graphcore_is_a_method(builder):
    """Each row of the table is a method, and so are those that take graphs."""
    for name in (*graphcore_operators(), "call", "packedDataBlock"):
        assert getattr(builder.aiGraphcore, name).__doc__


GRAPHCORE_SHAPES = [
    ("gelu", ["x"], {}, [4, 6]),
    ("scale", ["x"], {"scale": 2}, [4, 6]),
    ("atan2", ["x", "row"], {}, [4, 6]),
    ("l1loss", ["x"], {"lambda_": 0.1}, []),
    ("l1loss", ["x"], {"lambda": 0.1, "reduction": popart.ReductionType.NoReduction}, [4, 6]),
    ("nllloss", ["x", "labels"], {"reduction": popart.ReductionType.NoReduction}, [4]),
    ("reshape", ["x"], {"shape": [2, -1]}, [2, 12]),
    ("subsample", ["x"], {"strides": [2, 4]}, [2, 2]),
    ("slice", ["x"], {"ends": [3], "starts": [1], "axes": [0]}, [2, 6]),
    ("dynamicslice", ["x", "labels"], {"axes": [1], "sizes": [2]}, [4, 2]),
    ("scatterreduce", ["x", "labels"], {"axis_size": 9, "axis": 0}, [9, 6]),
]


@pytest.mark.parametrize(("name", "inputs", "attributes", "shape"), GRAPHCORE_SHAPES)
def test_shapes_of_graphcore(builder, name, inputs, attributes, shape):
    """Shapes follow from ai.graphcore's operators, too."""
    infos = {"x": ("FLOAT", [4, 6]), "row": ("FLOAT", [6]), "labels": ("INT32", [4])}
    for id in inputs:
        builder.addInputTensor(*infos[id], debugContext=id)
    result = getattr(builder.aiGraphcore, name)(inputs, **attributes)
    assert builder.getTensorShape(result) == shape


def test_the_first_opset_decides(builder):
    """One version of ai.onnx per model; the first that is touched, or the constructor's."""
    assert builder.aiOnnxOpset11.version == 11
    with pytest.raises(RuntimeError, match="Invalid opset 'aiOnnxOpset9' selected"):
        builder.aiOnnxOpset9  # noqa: B018
    assert builder.aiOnnx.version == 11
    chosen = popart.Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    with pytest.raises(RuntimeError, match="Invalid opset"):
        chosen.aiOnnxOpset10  # noqa: B018
    with pytest.raises(ValueError, match=r"Unsupported or unrecognized .* 99"):
        popart.Builder().aiOnnxOpset99  # noqa: B018


def test_what_does_not_fit(builder):
    """Wrong inputs, names and attributes are errors that name the operator and what is near."""
    x = builder.addInputTensor(FLOATS, "x")
    y = builder.addInputTensor("FLOAT", [5], "y")
    with pytest.raises(popart.popart_exception, match=r"Add\(x: float\[2, 3\], y: float\[5\]\)"):
        builder.aiOnnx.add([x, y])
    with pytest.raises(popart.popart_exception, match="Add takes 2 inputs"):
        builder.aiOnnx.add([x])
    with pytest.raises(popart.popart_exception, match="No tensor 'z'"):
        builder.aiOnnx.relu(["z"])
    with pytest.raises(popart.popart_exception, match=r"write \['x'\]"):
        builder.aiOnnx.relu("x")
    with pytest.raises(AttributeError, match="did you mean 'relu'"):
        builder.aiOnnx.rellu  # noqa: B018
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        builder.aiOnnx.softmax([x], axes=1)
    with pytest.raises(popart.popart_exception, match="No data type 'FLOTA'"):
        popart.TensorInfo("FLOTA", [1])
    assert builder.aiOnnx.relu([x]) == "Relu:0"  # what failed took no id


def test_annotations(builder):
    """Placement is stored in the node, by ids or by a context, and survives serialisation."""
    x = builder.addInputTensor(FLOATS)
    y = builder.aiOnnx.relu([x])
    with builder.virtualGraph(1), builder.pipelineStage(2):
        z = builder.aiOnnx.relu([y])
        with builder.virtualGraph(3):
            inner = builder.aiOnnx.relu([z])
        assert (builder.getVirtualGraph(), builder.hasPipelineStage()) == (1, True)
    builder.virtualGraph([y], 4)
    builder.setAvailableMemoryProportion(y, 0.25)
    builder.recomputeOutput(y, popart.RecomputeType.Checkpoint)
    assert [builder.getVirtualGraph(id) for id in (y, z, inner)] == [4, 1, 3]
    assert not builder.hasVirtualGraph()
    again = popart.Builder(builder.getModelProto())
    assert (again.getVirtualGraph(z), again.getPipelineStage(z)) == (1, 2)
    assert again.getFloatNodeAttribute("__available_memory_proportion", {y}) == 0.25
    (checkpoint,) = again.checkpointOutput([y])
    assert again.nodeHasAttribute("__recompute_output_in_backward_pass", {checkpoint})
    with pytest.raises(popart.popart_exception, match="Could not find a node"):
        again.virtualGraph(["nope"], 1)


def test_attributes_of_nodes(builder):
    """Attributes of every kind are written, read back, listed and removed."""
    y = builder.aiOnnx.relu([builder.addInputTensor(FLOATS)])
    values = {"i": 3, "is": [1, 2], "f": 0.5, "fs": [0.25, 2.0], "s": "text", "ss": ["a", "b"]}
    for name, value in values.items():
        builder.addNodeAttribute(name, value, {y})
    kinds = ["Int64", "Int64Vector", "Float", "FloatVector", "String", "StringVector"]
    for kind, (name, value) in zip(kinds, values.items(), strict=True):
        assert getattr(builder, f"get{kind}NodeAttribute")(name, {y}) == value
    with pytest.raises(popart.popart_exception, match="already has attribute i"):
        builder.addNodeAttribute("i", 4, {y})
    builder.removeNodeAttribute("i", {y})
    assert builder.getAllNodeAttributeNames({y}) == list(values)[1:]


def test_serialised_products(builder):
    """A product computed in parts is noted; other nodes and unknown modes are errors."""
    x = builder.addInputTensor("FLOAT", [4, 4])
    y = builder.aiOnnx.matmul([x, x])
    builder.setSerializeMatMul({y}, "output_channels", 2, True)
    assert builder.getInt64NodeAttribute("__matmul_serialize_factor", {y}) == 2
    with pytest.raises(popart.popart_exception, match="did you mean 'output_channels'"):
        builder.setSerializeMatMul({y}, "output_channel", 2)
    with pytest.raises(popart.popart_exception, match="made by Relu"):
        builder.setSerializeMatMul({builder.aiOnnx.relu([y])}, "output_channels", 2)


def test_graphs_inside_operations(builder):
    """Branches, bodies and callees are separate graphs, whose results have types."""
    x = builder.addInputTensor(FLOATS, "x")
    condition = builder.addInputTensor("BOOL", [], "c")
    branches = []
    for method in ("relu", "tanh"):
        branch = builder.createSubgraphBuilder()
        branch.addInputTensorFromParentGraph(x)
        branch.addOutputTensor(getattr(branch.aiOnnx, method)([x]))
        branches.append(branch)
    (y,) = builder.aiOnnx.logical_if([condition], 1, *branches)
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    going = body.addInputTensor("BOOL", [])
    carried = body.addInputTensor(FLOATS)
    body.addOutputTensor(going)
    body.addOutputTensor(body.aiOnnx.add([carried, carried]))
    body.addOutputTensor(body.aiOnnx.neg([carried]))
    trips = builder.aiOnnx.constant(np.array(5, np.int64))
    last, stacked = builder.aiOnnx.loop([trips, condition, y], 2, body)
    callee = builder.createSubgraphBuilder()
    callee.addOutputTensor(callee.aiGraphcore.gelu([callee.addInputTensor(FLOATS)]))
    (called,) = builder.aiGraphcore.call([last], 1, callee)
    builder.addOutputTensor(called)
    assert builder.getTensorShape(last) == builder.getTensorShape(called) == [2, 3]
    assert builder.getTensorShape(stacked) == [5, 2, 3]
    with pytest.raises(popart.popart_exception, match="does not match that of the callee"):
        builder.aiGraphcore.call([last, last], 1, callee)


def test_weights_in_files_of_their_own(builder, tmp_path, monkeypatch):
    """Initialisers saved externally are read back with the model."""
    monkeypatch.chdir(tmp_path)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = builder.addInitializedInputTensor(values, "w")
    v = builder.addInitializedInputTensor(values + 1, "v")
    builder.addOutputTensor(builder.aiOnnx.add([w, v]))
    builder.saveInitializersExternally([w, v], "weights.bin")
    builder.saveModelProto("model.onnx")
    small = onnx.load("model.onnx", load_external_data=False)
    assert not small.graph.initializer[0].raw_data
    result = [numpy_helper.to_array(t) for t in onnx.load("model.onnx").graph.initializer]
    np.testing.assert_array_equal(result, [values, values + 1])
    with pytest.raises(popart.popart_exception, match="already has an external data_location"):
        builder.saveInitializersExternally([w], "other.bin")
    with pytest.raises(popart.popart_exception, match="not an initializer"):
        builder.saveInitializersExternally(["u"], "other.bin")


def test_models_that_are_none():
    """Bytes and files that hold no model are errors."""
    with pytest.raises(popart.popart_exception, match="not an ONNX model"):
        popart.Builder(b"\xff\xff\xff")
    with pytest.raises(popart.popart_exception, match="there is no file"):
        popart.Builder("nowhere.onnx")
