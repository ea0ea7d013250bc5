"""Types of ai.graphcore's results, which the builder reads from the functions that compute them."""

import numpy as np
import pytest

import popart
from tremula.frontends.onnx.imported import import_model
from tremula.frontends.onnx.table import find_operator
from tremula.frontends.popart.builder.graphcore_ops import graphcore_operators, result_types
from tremula.frontends.popart.builder.inference import InferredType

RNG = np.random.default_rng(7)
FLOAT, INT32, FLOAT16 = 1, 6, 10


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def integers(*shape, below=4):
    return RNG.integers(0, below, shape).astype(np.int32)


IMAGE = floats(2, 4, 3, 3)
CASES = {
    "atan2": ([floats(4, 6), floats(6)], {}),
    "batchnormalization": ([IMAGE, *[np.ones(4, np.float32)] * 4], {"num_outputs": 5}),
    "bucketize": ([floats(4, 6), np.array([-1, 0, 1], np.float32)], {}),
    "copyvarupdate": ([floats(3), floats(3)], {}),
    "ctcbeamsearchdecoder": ([floats(5, 2, 3), np.array([5, 4], np.int32)], {"top_paths": 2}),
    "ctcloss": (
        [floats(5, 2, 3), integers(2, 2, below=2) + 1,
         np.array([5, 5], np.int32), np.array([2, 2], np.int32)],
        {"reduction": popart.ReductionType.NoReduction},
    ),
    "depthtospace": ([IMAGE], {"blocksize": 2}),
    "dynamicslice": ([floats(4, 6), np.array([1, 2], np.int32)], {"axes": [0, 1], "sizes": [2, 3]}),
    "groupedgather": ([floats(2, 5, 3), integers(2, 7)], {"axis": 1, "group_size": 2}),
    "groupedscatterreduce": (
        [floats(2, 5, 3), integers(2, 5)], {"axis_size": 4, "axis": 1, "group_size": 2},
    ),
    "groupnormalization": ([IMAGE, *[np.ones(4, np.float32)] * 2], {"num_groups": 2}),
    "lstm": ([floats(3, 2, 4), floats(4, 9, 5)], {"outputFullSequence": 0}),
    "nllloss": (
        [np.abs(floats(4, 6)), integers(4)], {"reduction": popart.ReductionType.NoReduction},
    ),
    "normalize_image": (
        [integers(2, 3, 3, 3).astype(np.uint8), floats(3), floats(3)], {"scale": 0.5},
    ),
    "printtensor": ([floats(3)], {"title": "x"}),
    "reducemedian": ([floats(4, 6)], {"axes": [1], "keepdims": 1}),
    "reshape": ([floats(4, 6)], {"shape": [0, -1, 2]}),
    "sequenceslice": (
        [floats(6, 2), floats(4, 2), *[np.array(v, np.int32) for v in ([2], [1], [0])]],
        {"zeroUnused": 1},
    ),
    "sort": ([integers(4, 6)], {}),
    "splinebasis": (
        [RNG.random((5, 2)).astype(np.float32), np.array([3, 3], np.int32),
         np.array([1, 1], np.uint8)],
        {"degree": 2},
    ),
    "splineweighting": ([floats(5, 3), floats(9, 3, 2), floats(5, 4), integers(5, 4)], {}),
    "tensorremap": ([floats(3)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_types_are_those_of_the_values(name):
    """Shape and element type that the builder says are those of the values that are computed."""
    arrays, attributes = CASES[name]
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(array)) for array in arrays]
    made = getattr(builder.aiGraphcore, name)(ids, **attributes)
    made = [made] if isinstance(made, str) else made
    values = import_model(builder.getModelProto()).run(dict(zip(ids, arrays, strict=True)), made)
    for id in made:
        array = np.asarray(values[id])
        assert builder.getTensorShape(id) == list(array.shape), id
        assert builder.getTensorDtypeString(id) == str(popart.TensorInfo(array).data_type_lcase())


def test_several_convolutions_have_several_types():
    """Attributes of all convolutions are joined; each has a result of another size."""
    builder = popart.Builder()
    shapes = [[1, 2, 8, 8], [3, 2, 3, 3], [1, 2, 6, 6], [5, 2, 1, 1]]
    ids = [builder.addInputTensor("FLOAT", shape) for shape in shapes]
    first, second = builder.aiGraphcore.multiconv(
        [ids[:2], ids[2:]], strides=[[2, 2], [1, 1]], pads=[[1, 1, 1, 1], [0, 0, 0, 0]]
    )
    assert builder.getTensorShape(first) == [1, 3, 4, 4]
    assert builder.getTensorShape(second) == [1, 5, 6, 6]


def _types(name, *types, **attributes):
    entry = find_operator("ai.graphcore", name, 1)
    assert entry is not None
    return result_types(entry, types, attributes, entry.n_outputs[0])


def test_open_dimensions_stay_open():
    """A dimension that no input tells is open in results that depend on it, and only there."""
    rows = InferredType(FLOAT, (None, 6))
    assert _types("Gelu", rows) == [rows]
    assert _types("ReduceMedian", rows, axes=[0], keepdims=0)[0] == InferredType(FLOAT, (6,))
    assert _types("Sort", rows) == [rows, InferredType(INT32, (None, 6))]
    assert _types("Reshape", rows, shape=[0, 2, 3]) == [InferredType(FLOAT, (None, 2, 3))]
    assert _types("Reshape", rows, shape=[7, -1]) == [InferredType(FLOAT)], (
        "no size that was tried fits"
    )
    assert _types("Gelu", InferredType(FLOAT16)) == [InferredType(FLOAT16)]
    assert _types("ReplicatedReduceScatter", rows) == [InferredType(FLOAT)]


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [
        ("atan2", [[4, 6], [5]], {}),
        ("scatterreduce", [[4, 6], [3]], {"axis_size": 2, "axis": 0}),
        ("dynamicslice", [[4, 6], [1]], {"axes": [2], "sizes": [1]}),
        ("reshape", [[4, 6]], {"shape": [5, 5]}),
        ("groupnormalization", [[2, 4, 3], [4], [4]], {"num_groups": 3}),
    ],
)
def test_inputs_that_do_not_fit_are_named(name, shapes, attributes):
    """An operator whose inputs do not fit is an error when the graph is built, with their types."""
    builder = popart.Builder()
    kinds = ["FLOAT", *["INT32" if name in ("scatterreduce", "dynamicslice") else "FLOAT"] * 2]
    ids = [builder.addInputTensor(k, s) for k, s in zip(kinds, shapes, strict=False)]
    with pytest.raises(popart.popart_exception, match=rf"(?i){name}\(.*float\[.*does not fit"):
        getattr(builder.aiGraphcore, name)(ids, **attributes)


def test_methods_say_what_an_operator_computes():
    """A method's docstring has the operator's own, and the names of its inputs."""
    document = popart.Builder().aiGraphcore.groupnormalization.__doc__
    assert "ormalised within groups" in document
    assert "Inputs: x, scale, bias." in document
    assert graphcore_operators()["l1loss"].type == "L1"
