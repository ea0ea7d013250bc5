"""What programs written for PopXL rely on: values on the host, options, shapes, types, chips."""

import numpy as np
import pytest

import popart
import popxl
from popart import popart_exception
from popxl import ops
from tests.frontends.popxl.runs import run


def stored(t):
    stream = popxl.d2h_stream(t.shape, t.dtype)
    ops.host_store(stream, t)
    return stream


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_arrays_of_the_host_are_never_written(n_replicas, dtype):
    """In-place operations on a loaded tensor leave the caller's array as it is, in every run."""
    ir = popxl.Ir(n_replicas)
    with ir.main_graph:
        stream = popxl.h2d_stream((3,), popxl.dtype.as_dtype(dtype))
        x = ops.host_load(stream)
        out = stored(ops.scaled_add_(x, popxl.constant(np.ones(3, dtype))))
    array = np.zeros((n_replicas, 3) if n_replicas > 1 else 3, dtype)
    with popxl.Session(ir, "cpu") as session:
        results = [session.run({stream: array})[out].copy() for _ in range(4)]
    assert all((result == 1).all() for result in results)
    assert not array.any()


def test_increments_wrap_as_in_c():
    """The remainder has the sign of the sum, in place or not."""
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(np.array([-5, -1, 4], np.int32))
        results = [ops.increment_mod(t, 1, 3), ops.increment_mod_(t, 1, 3)]
    assert [result.tolist() for result in run(ir, results)] == [[-1, 0, 2]] * 2


def test_one_hot_by_tensors():
    """The number of classes is a tensor; the axis is where classes go, and values are two."""
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(np.array([[1, 5]], np.int32))
        classes, values = popxl.constant(6, popxl.int32), popxl.constant([2.0, 3.0])
        results = [ops.onehot(t, classes, values, 1), ops.onehot(t, classes, values, -1)]
    first, last = run(ir, results)
    expected = np.where(np.eye(6)[[1, 5]], 3.0, 2.0)
    np.testing.assert_array_equal(last[0], expected)
    np.testing.assert_array_equal(first[0], expected.T)


def test_a_position_for_each_member_of_a_batch():
    """An index `[B, 1]` slices and updates each member at its position: a cache of keys."""
    ir = popxl.Ir()
    past, new = np.arange(24.0).reshape(3, 2, 4), -np.ones((3, 2, 1))
    with ir.main_graph:
        t, update = (popxl.variable(a.astype(np.float32)) for a in (past, new))
        index = popxl.variable(np.array([[0], [3], [1]], np.int32))
        part = ops.dynamic_slice(t, index, [0, 2], [3, 1], True)
        copy = ops.dynamic_update(t, index, update, [0, 2], [3, 1], True)
        results = [part, copy, ops.dynamic_update_(t, index, update, [0, 2], [3, 1], True)]
    part, copy, written = run(ir, results)
    expected = past.copy()
    for b, i in enumerate((0, 3, 1)):
        np.testing.assert_array_equal(part[b, :, 0], past[b, :, i])
        expected[b, :, i] = -1
    np.testing.assert_array_equal(copy, expected)
    np.testing.assert_array_equal(written, expected)


def test_eight_bit_scalars_and_conversion():
    """8-bit data is converted with scale 0 by default, and a scalar has no dimensions."""
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(3.0, popxl.float8_143)
        c = popxl.constant([1.0, 2.0], popxl.float8_152)
        results = [ops.pow2scale_cast_from_fp8(t, 0, popxl.float32) for t in (v, c)]
    assert (v.shape, c.shape) == ((), (2,))
    scalar, both = run(ir, results)
    assert scalar.tolist() == 3.0
    assert both.tolist() == [1, 2]


def test_shards_in_a_plain_buffer():
    """A buffer of the shape of one shard serves a sharded variable; a group axis of one goes."""
    ir = popxl.Ir(2)
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((3,), popxl.float32, 1)
        whole = popxl.remote_replica_sharded_variable(np.arange(6.0), buffer, 0)
        shard = ops.remote_load(buffer, 0)
        ops.remote_store(buffer, 0, shard + 1)
        out = stored(ops.collectives.replicated_all_gather(shard))
        plain = popxl.remote_buffer((1,), popxl.float32, 1)
        one = popxl.remote_variable(np.zeros((1, 1)), plain, replica_grouping=ir.replica_grouping())
    assert (shard.meta_shape, whole.shape, one.shape) == ((6,), (6,), (1,))
    with popxl.Session(ir, "cpu") as session:
        np.testing.assert_array_equal(session.run()[out][1], np.arange(6))
        np.testing.assert_array_equal(session.get_tensor_data(whole), np.arange(6) + 1)


def test_values_written_to_variables():
    """Numbers, lists and 64-bit arrays become the variable's type; other arrays do not."""
    ir = popxl.Ir(2)
    with ir.main_graph:
        scalar = popxl.variable(1.0)
        v = popxl.variable([1.0, 2.0])
        grouping = ir.replica_grouping(group_size=2)
        both = popxl.variable([1.0], replica_grouping=grouping, retrieval_mode="all_replicas")
        ops.add(v, scalar)
    assert both.shape_on_host == (1,)
    with popxl.Session(ir, "cpu") as session:
        session.write_variable_data(scalar, 2)
        session.write_variables_data({v: np.full((1, 2), 3.0)})
        assert session.get_tensor_data(scalar).tolist() == 2.0
        assert session.get_tensor_data(v).tolist() == [3, 3]
        with pytest.raises(TypeError, match="convert the array"):
            session.write_variable_data(v, np.ones(2, np.float16))
        with pytest.raises(NotImplementedError, match="retrieved from all replicas"):
            session.write_variable_data(both, [1.0])


def test_options_of_the_program():
    """Session options are PopART's, with PopXL's defaults; sessions compile with them."""
    ir = popxl.Ir()
    options = ir._pb_ir.getSessionOptions()
    assert (options.useHostCopyOps, options.enableExplicitMainLoops) == (True, True)
    options.engineOptions["target.syncReplicasIndependently"] = "true"
    options.enableStochasticRounding = True
    options.partialsTypeMatMuls = "half"
    assert ir._pb_ir.getSessionOptions().engineOptions["target.syncReplicasIndependently"] == "true"
    with ir.main_graph:
        stored(popxl.variable(1.0) + 1)
    settings = popxl.Session(ir, "cpu")._tile_settings()
    assert settings.lowering.rounds_stochastically
    assert settings.lowering.partials_type == "half"
    assert settings.shows_progress


def test_shapes_of_runs():
    """Transfers and replicas are leading dimensions where there are several."""
    ir = popxl.Ir(4)
    ir.num_host_transfers = 8
    with ir.main_graph:
        stored(popxl.variable(1.0) + 1)
    session = popxl.Session(ir, "cpu")
    assert session._full_input_shape((2, 3)) == (8, 4, 2, 3)
    for call in (session.run, session.weights_from_host, session.weights_to_host):
        with pytest.raises(ValueError, match="not attached"):
            call()


def test_types_must_match():
    """Operands that are combined have one type: concatenations, maxima, updates, scatters."""
    with popxl.Ir().main_graph:
        f, i = popxl.variable([1.0, 2.0]), popxl.variable([1, 2])
        for call in (
            lambda: ops.maximum(f, i),
            lambda: ops.dynamic_update(f, popxl.constant([0]), i, [0], [2], True),
            lambda: ops.scatter(f, i, i),
        ):
            with pytest.raises(popart_exception, match="the same dtype"):
                call()
        for join in (ops.concat, ops.concat_):
            with pytest.raises(TypeError, match="must have the same type"):
                join([f, i])


def test_tensors_of_another_chip():
    """An operation takes computed tensors of one chip; copies and results of calls know theirs."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable([1.0, 2.0])
        here = x + 1
        with popxl.ipu(1):
            there = here.copy_to_ipu(1)
            ops.add(there, there)
            graph = ir.create_graph(lambda t: t + 1, x.spec)
            (called,) = ops.call(graph, there)
        assert there.ipu == 1
        with pytest.raises(ValueError, match="different IPUs"):
            ops.add(here, there)
        with popxl.ipu(1):
            ops.add(called, there)
        with popxl.io_tiles():
            io = ops.io_tile_copy(here)
        with pytest.raises(ValueError, match="different tile sets"):
            ops.add(here, io)


def test_plus_equals_is_in_place():
    """`t += x` writes t and gives t; an empty list plus a tensor is a mistake."""
    ir = popxl.Ir()
    with ir.main_graph:
        t = before = popxl.variable([1.0, 2.0])
        t += 1
        assert t is before
        empty = []
        with pytest.raises(ValueError, match="no elements"):
            empty += t
        result = ops.identity(t)
    assert run(ir, [result])[0].tolist() == [2, 3]


def test_replicas_are_a_session_option():
    """The number of replicas is set on the Ir or in its options, and read from either."""
    ir = popxl.Ir()
    options = ir._pb_ir.getSessionOptions()
    options.enableReplicatedGraphs = True
    options.replicatedGraphCount = 2
    with ir.main_graph:
        t = popxl.variable(np.zeros((2, 5)))
        assert ops.collectives.replicated_all_gather(t).shape == (4, 5)
    assert ir.replication_factor == 2
    ir.replication_factor = 4
    assert options.replicatedGraphCount == 4
    settings = ir.replica_grouping(2, 2)._to_variable_settings("all_replicas")
    assert (settings.getStride(), settings.getGroupSize()) == (2, 2)
    assert popxl.ReplicaGrouping._from_variable_settings(ir, settings) == ir.replica_grouping(2, 2)


def test_a_session_of_popart():
    """`popart.InferenceSession.fromIr` runs a program on arrays by the ids of its streams."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.h2d_stream((2,), popxl.float32, name="x")
        y = popxl.d2h_stream((2,), popxl.float32, name="y")
        w = popxl.variable([1.0, 2.0], name="w")
        ops.host_store(y, ops.add_(w, ops.host_load(x)))
    view = ir._pb_ir
    view.setDataFlow(popart.DataFlow(1, {y.tensor_id: popart.AnchorReturnType("All")}))
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession.fromIr(ir=view, deviceInfo=device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x.tensor_id: np.ones(2, np.float32)}, anchors))
    assert anchors[y.tensor_id].tolist() == [2, 3]
    weights = popart.PyWeightsIO({"w": np.zeros(2, np.float32)})
    session.weightsToHost()
    session.readWeights(weights)
    assert weights.weights["w"].tolist() == [2, 3]


def test_merged_transfers_are_one_operation_of_the_view():
    """PopART's view of a graph shows an exchange for transfers that move together."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.transforms.merge_exchange():
        ops.host_load(popxl.h2d_stream((), popxl.float32), "x")
        ops.host_store(popxl.d2h_stream((), popxl.float32), popxl.constant(1.0))
    view = ir.main_graph._pb_graph
    assert [op.opType() for op in view.getOps()] == ["Init", "MultiExchange"]


def test_names_and_places_in_graphs():
    """A cast is named after its operand; hooks see all graphs; contexts give what they open."""
    ir = popxl.Ir()
    kinds = []
    context = popxl.context.get_current_context()
    handle = context.register_op_created_hook(lambda op: kinds.append(op.kind))
    with ir.main_graph, popxl.ipu(2) as chip, popxl.in_sequence() as is_ordered:
        a = popxl.variable(1.0, name="a")
        assert ops.cast(a, popxl.float16).name == "a_float16"
        assert (chip, is_ordered, context.ipu_id, context.in_sequence) == (2, True, 2, True)
        ir.create_graph(lambda t: t * 2, a)
    context.remove_op_created_hook(handle)
    with ir.main_graph, popxl.name_scope("part") as scopes:
        assert scopes == ["part"]
        assert (a + 1).name == "part/add_out"
    assert kinds == ["Cast", "Mul"]


@pytest.mark.parametrize(
    ("checks", "names"), [("", set()), ("final", {"Final"}), ("ALL", {"Foo", "Bar", "Final"})]
)
def test_pictures_at_checkpoints(checks, names, tmp_path, monkeypatch):
    """Checkpoints that options or the environment name write a picture; a session writes Final."""
    monkeypatch.setenv("POPART_DOT_CHECKS", checks)
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().logDir = str(tmp_path)
    with ir.main_graph:
        t = popxl.variable(1.0) + 1
        ir.dot_checkpoint("Foo")
        ir.dot_checkpoint("Bar", tmp_path)
        stored(t)
    popxl.Session(ir, "cpu")
    assert {path.stem for path in tmp_path.glob("*.dot")} == names


def test_memory_maps_of_grouped_variables(tmp_path, capfd):
    """A map is written back to, flushed and given back itself; a grouping without stride warns."""
    ir = popxl.Ir(8)
    data = np.memmap(tmp_path / "w", np.float32, "w+", shape=(2, 4))
    grouping = ir.replica_grouping_from_assignments([0, 0, 1, 1, 0, 0, 1, 1])
    with ir.main_graph:
        w = popxl.variable(data, replica_grouping=grouping)
        w += 1
    assert "non-const replica grouping" in capfd.readouterr().err
    with popxl.Session(ir, "cpu") as session:
        session.run()
    assert session.get_tensor_data(w) is data
    assert (data == 1).all()


def test_scales_out_of_range_may_be_allowed():
    """With throwIfLog2ScaleTensorNotInRange off, a scale of 50 multiplies by 2**50."""
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().throwIfLog2ScaleTensorNotInRange = False
    with ir.main_graph:
        small = ops.pow2scale_cast_to_fp8(popxl.variable([2.0**-50]), 50, popxl.float8_143)
        result = stored(ops.pow2scale_cast_from_fp8(small, 0, popxl.float32))
    with popxl.Session(ir, "cpu") as session:
        assert session.run()[result].tolist() == [1.0]


def test_titles_of_printed_tensors(capfd):
    """Without a title, a tensor is printed under its name, and its gradient beside it."""
    ir = popxl.Ir()

    def square(x):
        x = ops.print_tensor(x, print_gradient=True)
        return x * x

    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable([1.0, 2.0], name="x")
        graph = ir.create_graph(square, x)
        info = popxl.transforms.autodiff(graph)
        call = ops.call_with_info(graph, x)
        inputs = info.inputs_dict(call)
        (grad,) = ops.call(info.graph, call.outputs[0], inputs_dict=inputs)
        stored(grad)
    with popxl.Session(ir, "cpu") as session:
        session.run()
    printed = capfd.readouterr().err
    assert "print_x:" in printed
    assert "print_x_gradient:" in printed


def test_inputs_that_loops_write():
    """PopART's numbers of a loop's inputs begin behind its count and its condition."""
    ir = popxl.Ir()

    def add(x: popxl.Tensor, y: popxl.TensorByRef) -> popxl.Tensor:
        ops.var_updates.accumulate_(y, x)
        return x

    with ir.main_graph:
        a, b = popxl.variable(1), popxl.variable(2)
        info = ops.repeat_with_info(ir.create_graph(add, a, b), 10, a, b)
    assert not info._op.modifiesIndex(2)
    assert info._op.modifiesIndex(3)


def test_reductions_of_no_dimension():
    """With no axes each element is reduced alone; None is all axes. Histograms count in uint32."""
    array = np.arange(-3.0, 3.0, dtype=np.float32).reshape(2, 3)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(array)
        results = [ops.sum(t, axis=()), ops.l1(t, axis=[], keepdims=True), ops.sum(t)]
        results.append(ops.histogram(t, [-1.5, 1.5], False))
    alone, sizes, total, counts = run(ir, results)
    np.testing.assert_array_equal(alone, array)
    np.testing.assert_array_equal(sizes, np.abs(array))
    assert total == array.sum()
    assert (counts.tolist(), counts.dtype) == ([2, 3, 1], np.uint32)


def test_a_source_location_is_a_callers_line():
    """The location names the function and the line that is this many calls up."""

    def helper(offset: int):
        return popxl.context.get_source_location(offset)

    here, above = helper(0), helper(1)
    assert (here.function, above.function) == ("helper", "test_a_source_location_is_a_callers_line")
    assert (above.file, above.line - here.line) == (here.file, 2)
