"""Files that are truncated, foreign or hostile: a clear error, and no large allocation."""

import os
import resource
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tremula.base.errors import PoplarError
from tremula.frontends.onnx import OnnxError, import_model

node = helper.make_node


def info(name, shape=(2,)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes, weights=(), inputs=("x",), outputs=("y",)):
    graph = helper.make_graph(
        nodes, "main", [info(name) for name in inputs], [info(name) for name in outputs],
        list(weights),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def good_model():
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    return model_of([node("Add", ["x", "w"], ["y"])], [weight])


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n" * 20, zlib.compress(b"x" * 99), b"{}"])
def test_foreign_bytes(data):
    """Anything else than a model is an error that says so."""
    with pytest.raises(OnnxError, match=r"not an ONNX model|no graph"):
        import_model(data)


def test_missing_files(tmp_path):
    """The path is named, and so is a folder that is given for a file."""
    with pytest.raises(OnnxError, match="There is no file"):
        import_model(tmp_path / "nothing.onnx")
    with pytest.raises(OnnxError, match="There is no file"):
        import_model(tmp_path)


def test_a_damaged_file_never_crashes():
    """Whatever byte changes, wherever the file ends: a model or an error of ours; both occur."""
    n_run, n_rejected = 0, 0
    whole = good_model().SerializeToString()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(where=st.integers(0, len(whole) - 1), byte=st.integers(0, 255), cut=st.booleans())
    def damage(where, byte, cut):
        nonlocal n_run, n_rejected
        data = whole[:where] if cut else bytes([*whole[:where], byte, *whole[where + 1 :]])
        try:
            imported = import_model(data)
            imported.run({v.name: np.ones(2, np.float32) for v in imported.inputs}, ["y"])
            n_run += 1
        except PoplarError:
            n_rejected += 1

    damage()
    assert min(n_run, n_rejected) > 3, (n_run, n_rejected)


def test_a_circle_of_nodes():
    """Nodes that need each other's outputs are named."""
    nodes = [node("Relu", ["b"], ["a"], name="one"), node("Relu", ["a"], ["b"], name="two")]
    with pytest.raises(OnnxError, match=r"in a circle: Relu 'one', Relu 'two'"):
        import_model(model_of([*nodes, node("Add", ["x", "a"], ["y"])]))


def test_nodes_in_any_order_are_sorted():
    """ONNX asks for an order; a file that has another is still clear."""
    nodes = [node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])]
    (y,) = import_model(model_of(nodes)).run({"x": np.array([-1, 2], np.float32)}, ["y"]).values()
    assert y.tolist() == [1, 0]


def test_two_values_of_one_name():
    """It would be open which of them a node reads."""
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(OnnxError, match="Two values of graph 'main' are called 'y'"):
        import_model(model_of(nodes))


def test_a_missing_initialiser():
    """What a node reads must come from somewhere."""
    with pytest.raises(OnnxError, match="node Add 'y' reads 'w'"):
        import_model(model_of([node("Add", ["x", "w"], ["y"])]))


def test_outputs_that_nothing_makes():
    """An output must come from somewhere, too."""
    with pytest.raises(OnnxError, match="list of outputs reads 'z'"):
        import_model(model_of([node("Relu", ["x"], ["y"])], outputs=["z"]))


@pytest.mark.parametrize("kind", ["raw", "listed", "none", "negative", "sparse", "shape"])
def test_huge_shapes_allocate_nothing(kind):
    """A tensor is as large as its data; a shape alone takes no memory."""
    huge = [1 << 20, 1 << 20]
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=huge)
    nodes = [node("Add", ["x", "w"], ["y"])]
    model = model_of(nodes, [weight])
    tensor = model.graph.initializer[0]
    if kind == "raw":
        tensor.raw_data = b"\0" * 8
    elif kind == "listed":
        tensor.float_data.extend([1.0, 2.0])
    elif kind == "negative":
        tensor.dims[0] = -5
    elif kind == "sparse":
        del model.graph.initializer[:]
        values = numpy_helper.from_array(np.ones(1, np.float32), "w")
        places = numpy_helper.from_array(np.zeros(1, np.int64), "i")
        sparse = helper.make_sparse_tensor(values, places, huge)
        model.graph.sparse_initializer.append(sparse)
    elif kind == "shape":
        del model.graph.initializer[:]
        model.graph.initializer.append(numpy_helper.from_array(np.array(huge), "s"))
        model.graph.node[0].CopyFrom(node("ConstantOfShape", ["s"], ["y"]))
    before = peak_mb()
    with pytest.raises(PoplarError):
        import_model(model).run({"x": np.ones(2, np.float32)}, ["y"])
    assert peak_mb() - before < 200


def test_deep_nesting():
    """Graphs within graphs end at a depth."""
    choice = node("Identity", ["x"], ["y"])
    for _ in range(25):
        inner = helper.make_graph([choice], "inner", [], [info("y")])
        choice = node("SequenceMap", ["x"], ["y"], body=inner)
    with pytest.raises(OnnxError, match="nested more than"):
        import_model(model_of([choice]).SerializeToString())


def test_functions_that_call_themselves():
    """An endless expansion is rejected, with the path."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    call = [node("F", ["a"], ["b"], domain="mine")]
    model = model_of([node("F", ["x"], ["y"], domain="mine")])
    model.opset_import.append(imports[1])
    model.functions.append(helper.make_function("mine", "F", ["a"], ["b"], call, imports))
    with pytest.raises(OnnxError, match="calls itself: F → F"):
        import_model(model)


def test_versions_from_the_future():
    """A newer operator set than onnx knows is named with what is known."""
    model = good_model()
    model.opset_import[0].version = 999
    with pytest.raises(OnnxError, match=r"version 999 of ONNX's operators; onnx .* knows 1 to"):
        import_model(model)


def external_model(location, n_bytes=8, offset=0):
    model = good_model()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", n_bytes)):
        weight.external_data.add(key=key, value=str(value))
    return model


def test_external_data_stays_in_its_folder(tmp_path):
    """Paths that lead out, also by links, are rejected; so are files that are too short."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(np.ones(2, np.float32).tobytes())
    (folder / "weights.bin").write_bytes(np.full(2, 3, np.float32).tobytes())
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    path = folder / "model.onnx"

    def load(*args):
        path.write_bytes(external_model(*args).SerializeToString())
        return import_model(path)

    assert load("weights.bin").parameters_by_name["w"].tolist() == [3, 3]
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", ""):
        with pytest.raises(OnnxError, match="outside the model's folder"):
            load(location)
    with pytest.raises(OnnxError, match="which is missing"):
        load("gone.bin")
    with pytest.raises(OnnxError, match="needs 8 bytes from byte 4"):
        load("weights.bin", 8, 4)
    with pytest.raises(OnnxError, match="offset '-3'"):
        load("weights.bin", 8, -3)
    with pytest.raises(OnnxError, match="but the model is from none"):
        import_model(external_model("weights.bin"))


def test_saved_models_with_external_data(tmp_path):
    """What onnx itself writes beside a model is read."""
    model, path = good_model(), tmp_path / "model.onnx"
    large = numpy_helper.from_array(np.arange(2, dtype=np.float32), "w")
    model.graph.initializer[0].CopyFrom(large)
    save(
        model, path, save_as_external_data=True, location="weights.bin", size_threshold=0,
    )  # fmt: skip
    assert ModelProto.FromString(path.read_bytes()).graph.initializer[0].external_data
    assert import_model(path).parameters_by_name["w"].tolist() == [0, 1]
