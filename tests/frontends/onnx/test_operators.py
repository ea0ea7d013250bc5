"""Operators against ONNX's reference, on random shapes, types and attributes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tremula.frontends.onnx.backend import OnnxBackend

OPSET = 21
SIZES = st.integers(1, 4)
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**16)
FLOATS = (np.float32, np.float64, np.float16)
INTS = (np.int32, np.int64, np.int8, np.uint8)
sampled = settings(max_examples=12, deadline=None, derandomize=True)


def check(op, inputs, n_outputs=1, *, opset=OPSET, domain="", rtol=1e-5, atol=1e-6, **attributes):
    """One node gives what the reference gives: values, types and shapes."""
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if name}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in feeds.items()
    ]
    untyped = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "one", infos, untyped)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 3))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    expected = ReferenceEvaluator(model).run(None, feeds)
    result = OnnxBackend.prepare(model).run(feeds)
    for ours, theirs in zip(result, expected, strict=True):
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if ours.dtype == np.float16:
            np.testing.assert_allclose(ours, theirs, rtol=4e-3, atol=4e-3)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def numbers(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 9, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(dtype)


@sampled
@given(
    op=st.sampled_from("Add Sub Mul Div Pow Mod Max Min Sum".split()),
    shape=SHAPES,
    cut=st.integers(0, 3),
    dtype=st.sampled_from(FLOATS + INTS),
    seed=SEEDS,
)
def test_arithmetic(op, shape, cut, dtype, seed):
    """Two tensors, broadcast; whole numbers divide towards zero, powers keep the base's type."""
    a = np.abs(numbers(seed, shape, dtype)) + dtype(1)
    b = np.abs(numbers(seed + 1, shape[cut % len(shape) :], dtype)) + dtype(1)
    attributes = {"fmod": 1} if op == "Mod" and dtype in FLOATS else {}
    if op == "Pow":
        a, b = np.minimum(a, dtype(3)), np.minimum(b, dtype(2))
    check(op, [a, b], rtol=1e-4, **attributes)


@sampled
@given(
    op=st.sampled_from(
        "Abs Neg Exp Sqrt Erf Sigmoid Tanh Softplus Softsign Elu Selu HardSigmoid LeakyRelu Gelu"
        " Mish Celu Sign Round Floor Ceil Reciprocal Softmax LogSoftmax Hardmax".split()
    ),
    shape=SHAPES,
    dtype=st.sampled_from(FLOATS),
    seed=SEEDS,
)
def test_functions_of_one_tensor(op, shape, dtype, seed):
    """Element by element, or along the last axis."""
    x = numbers(seed, shape, dtype)
    check(op, [np.abs(x) + dtype(0.5) if op in ("Sqrt", "Reciprocal") else x])


@sampled
@given(
    op=st.sampled_from("Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp".split()),
    shape=SHAPES,
    axes=st.sets(st.integers(-4, 3), max_size=3),
    keep=st.booleans(),
    seed=SEEDS,
)
def test_reductions(op, shape, axes, keep, seed):
    """Over any axes, from either end, kept or not."""
    axes = sorted({axis % len(shape) for axis in axes})
    x = numbers(seed, shape, np.float32)
    check(f"Reduce{op}", [x, np.array(axes, np.int64)], keepdims=int(keep), rtol=1e-4)


@sampled
@given(
    size=st.tuples(st.integers(4, 7), st.integers(4, 7)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    pads=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    group=st.sampled_from([1, 2]),
    seed=SEEDS,
)
def test_convolutions(size, kernel, stride, dilation, pads, group, seed):
    """Strides, dilation, uneven pads and groups; and the transposed one."""
    if any(d < dilation * (k - 1) + 1 for d, k in zip(size, kernel, strict=True)):
        return
    x = numbers(seed, (2, 4, *size), np.float32)
    how = {"strides": [stride, stride], "dilations": [dilation, dilation], "pads": pads}
    weight = numbers(seed + 1, (6, 4 // group, *kernel), np.float32)
    bias = numbers(seed + 2, (6,), np.float32)
    check("Conv", [x, weight, bias], group=group, rtol=1e-4, atol=1e-4, **how)
    if group == 1:
        weight = numbers(seed + 1, (4, 3, *kernel), np.float32)
        how["pads"] = [min(p, k - 1) for p, k in zip(pads, kernel * 2, strict=True)]
        check("ConvTranspose", [x, weight], rtol=1e-4, atol=1e-4, **how)


@sampled
@given(
    op=st.sampled_from(["MaxPool", "AveragePool"]),
    size=st.integers(4, 8),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    pad=st.integers(0, 1),
    ceil=st.booleans(),
    counts=st.booleans(),
    seed=SEEDS,
)
def test_pooling(op, size, kernel, stride, pad, ceil, counts, seed):
    """Windows that are cut off at the end count if the node says so."""
    pad = min(pad, kernel - 1)
    x = numbers(seed, (1, 2, size, size), np.float32)
    how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    how["ceil_mode"] = int(ceil)
    if op == "AveragePool":
        how["count_include_pad"] = int(counts)
    check(op, [x], **how)


@sampled
@given(
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    axis=st.integers(0, 2),
    start=st.integers(-7, 7),
    end=st.integers(-7, 7),
    step=st.sampled_from([-2, -1, 1, 2, 3]),
    seed=SEEDS,
)
def test_slices(shape, axis, start, end, step, seed):
    """Bounds beyond either end, negative ones, and steps in both directions."""
    axis = axis % len(shape)
    bounds = [np.array([value], np.int64) for value in (start, end, axis, step)]
    check("Slice", [numbers(seed, shape, np.float32), *bounds])


@sampled
@given(
    shape=st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple),
    pads=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    mode=st.sampled_from(["constant", "edge", "reflect", "wrap"]),
    seed=SEEDS,
)
def test_padding(shape, pads, mode, seed):
    """In every mode, on every side."""
    n = len(shape)
    sizes = [min(p, shape[i % n] - 1) for i, p in enumerate(pads[: 2 * n])]
    check("Pad", [numbers(seed, shape, np.float32), np.array(sizes, np.int64)], mode=mode)


@sampled
@given(
    rows=st.integers(2, 5),
    columns=st.integers(1, 4),
    axis=st.sampled_from([0, 1]),
    reduction=st.sampled_from(["none", "add", "mul", "max", "min"]),
    seed=SEEDS,
)
def test_gathering_and_scattering(rows, columns, axis, reduction, seed):
    """By elements, by slices and by tuples of indices, from either end."""
    rng = np.random.default_rng(seed)
    x = numbers(seed, (rows, columns), np.float32)
    size = x.shape[axis]
    places = np.argsort(rng.random(x.shape), axis).astype(np.int64)  # each once: no ties
    check("GatherElements", [x, places - size * (places % 2)], axis=axis)
    check("Gather", [x, rng.integers(-size, size, (2, 3))], axis=axis)
    updates = numbers(seed + 1, x.shape, np.float32)
    check("ScatterElements", [x, places, updates], axis=axis, reduction=reduction)
    tuples = rng.permutation(rows)[:2].reshape(2, 1).astype(np.int64)
    check("GatherND", [x, tuples])
    check("ScatterND", [x, tuples, updates[:2]], reduction=reduction)


@sampled
@given(
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    how=st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    size=st.integers(2, 5),
    scale=st.sampled_from([0.6, 1.5, 2.0, 3.0]),
    seed=SEEDS,
)
def test_resizing(mode, how, size, scale, seed):
    """Larger and smaller, by every way to place pixels."""
    x = numbers(seed, (1, 1, size, size), np.float32)
    scales = np.array([1, 1, scale, scale], np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": how}
    check("Resize", [x, None, scales], opset=19, rtol=1e-4, atol=1e-5, **attributes)


@sampled
@given(
    op=st.sampled_from(["RNN", "GRU", "LSTM"]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    batch=st.integers(1, 3),
    steps=st.integers(1, 3),
    seed=SEEDS,
)
def test_recurrent_layers(op, direction, batch, steps, seed):
    """In either direction and in both; the reference has no lengths of sequences to compare."""
    n_gates, n_directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1 + (direction == "bidirectional")
    if n_directions == 2 and op != "LSTM":
        return  # the reference does not have it
    x = numbers(seed, (steps, batch, 3), np.float32)
    w = numbers(seed + 1, (n_directions, n_gates * 2, 3), np.float32)
    r = numbers(seed + 2, (n_directions, n_gates * 2, 2), np.float32)
    b = numbers(seed + 3, (n_directions, n_gates * 4), np.float32)
    if direction == "forward":
        check(op, [x, w, r, b], 2, hidden_size=2, rtol=1e-4)
    else:
        _check_direction(op, direction, x, [w, r, b])


def _check_direction(op, direction, x, weights):
    """A reversed layer is a layer of the reversed sequence."""

    def run(direction, x, weights):
        node = helper.make_node(op, list("xwrb"), ["y", "h"], direction=direction, hidden_size=2)
        infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, v.shape)
            for name, v in zip("xwrb", [x, *weights], strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "h")]
        graph = helper.make_graph([node], "layer", infos, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        return OnnxBackend.prepare(model).run([x, *weights])

    y, h = run(direction, x, weights)
    last = [weight[-1:] for weight in weights]
    mirrored, final = run("forward", x[::-1].copy(), last)
    np.testing.assert_allclose(y[:, -1], mirrored[::-1, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h[-1], final[0], rtol=1e-5, atol=1e-6)


@sampled
@given(
    dtype=st.sampled_from([TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8]),
    axis=st.sampled_from([0, 1]),
    seed=SEEDS,
)
def test_quantised_numbers(dtype, axis, seed):
    """To few bits and back, with a scale for each slice."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    x = numbers(seed, (3, 4), np.float32)
    scale = np.abs(numbers(seed + 1, (x.shape[axis],), np.float32)) + np.float32(0.1)
    zero = np.zeros(x.shape[axis], kind)
    check("QuantizeLinear", [x, scale, zero], axis=axis)
    whole = np.random.default_rng(seed).integers(0, 4, x.shape).astype(kind)
    check("DequantizeLinear", [whole, scale, zero], axis=axis)


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2", "BFLOAT16", "FLOAT4E2M1", "INT4"])
def test_casts_to_small_types_are_exact(name):
    """Every value is the nearest one of the type, as ml_dtypes rounds."""
    kind = getattr(TensorProto, name)
    array = helper.tensor_dtype_to_np_dtype(kind)
    x = np.array([0, 0.3, 0.75, 1.26, -2.5, 3.4, 5.9, -0.06], np.float32)
    x = np.round(x) if name == "INT4" else x
    node = helper.make_node("Cast", ["x"], ["y"], to=kind)
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("y", kind, x.shape),
    ]
    graph = helper.make_graph([node], "cast", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    (result,) = OnnxBackend.prepare(model).run([x])
    assert result.dtype == array
    np.testing.assert_array_equal(result.astype(np.float32), x.astype(array).astype(np.float32))


def test_classic_trees():
    """Regressors and classifiers before version 5 walk their trees as the reference does."""
    x = np.array([[0.2, 1.0], [0.8, -1.0], [0.5, 0.1]], np.float32)
    nodes = {
        "nodes_treeids": [0, 0, 0, 0, 0],
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 1, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.5, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0],
        "nodes_missing_value_tracks_true": [0] * 5,
        "nodes_hitrates": [1.0] * 5,
    }
    leaves = {"nodeids": [2, 3, 4], "treeids": [0] * 3, "weights": [0.1, 2.0, -3.0]}
    targets = {f"target_{key}": value for key, value in leaves.items()}
    check(
        "TreeEnsembleRegressor", [x], domain="ai.onnx.ml", n_targets=1,
        target_ids=[0, 0, 0], post_transform="NONE", **nodes, **targets,
    )  # fmt: skip
