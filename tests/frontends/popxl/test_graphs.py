"""Graphs, tensors and operations: names, inputs, what they hold, and what is refused."""

import numpy as np
import pytest

import popart._internal.ir as _ir
import popxl
from popart import popart_exception
from popxl import ops
from popxl.errors import UndefinedValue


@pytest.fixture
def main():
    with popxl.Ir().main_graph as graph:
        yield graph


def kinds(graph):
    return [op.opType() for op in graph._pb_graph.getOps()]


def test_names(main):
    """Ids are names, with a number if taken, a scope if open, and the graph's name before."""
    a, b = popxl.variable(1, name="w"), popxl.variable(1, name="w")
    with popxl.name_scope("layer"), popxl.name_scope("0"):
        c = popxl.variable(1, name="w")

    def inner(x):
        return ops.identity(x, "y")

    graph = main.ir.create_graph(inner, a)
    assert (a.id, c.id, a.name) == ("w", "layer/0/w", "w")
    assert b.id not in {a.id, c.id}
    assert graph.id == "test_names.inner_subgraph(0)"
    assert [t.id for t in graph.tensors] == [f"{graph.id}/x", f"{graph.id}/y"]
    assert repr(a) == "Tensor[w popxl.dtypes.int32 ()]"
    assert graph.get_tensor(f"{graph.id}/x") is graph.inputs_by_name["x"]
    with pytest.raises(ValueError, match="There is no tensor"):
        graph.get_tensor("x")
    with pytest.raises(TypeError):
        1 in main  # noqa: B015


def test_arguments_become_inputs(main):
    """Tensors and specs become inputs in the order of the signature, others pass through."""

    def build(a, b: list[popxl.Tensor], c: bool, *d: popxl.TensorByRef, e, f=0, **g):
        assert c is True
        total = a + float(f)
        for t in [*b, *d, e, *g.values()]:
            total = total + t
        return total

    x = [popxl.variable(1.0) for _ in range(8)]
    graph = main.ir.create_graph(
        build, x[0], [x[1], x[2].spec], True, x[3], x[4], e=x[5], x=x[6], z=x[7]
    )
    assert len(graph.inputs) == 8
    assert len(graph.by_ref_inputs) == 2
    assert [t.name for t in graph.inputs][:3] == ["a", "b_0", "b_1"]
    with pytest.raises(TypeError, match="mixes"):
        main.ir.create_graph(lambda a: None, [x[0], 1])
    with pytest.raises(ValueError, match="do not match the signature"):
        main.ir.create_graph(lambda a: a, x[0], x[1])
    with pytest.raises(ValueError, match="must return"):
        main.ir.create_graph(lambda: True)
    with pytest.raises(ValueError, match="main graph"), graph:
        popxl.variable(1.0)


def test_calls_are_checked(main):
    """Missing, superfluous, repeated, foreign and ill-typed inputs are refused."""
    x, y = popxl.variable(1.0), popxl.variable([1.0, 2.0])
    graph = main.ir.create_graph(lambda a, b: (a + b, a - b), x, x)
    with pytest.raises(ValueError, match="Too many inputs have been provided"):
        ops.call(graph, x, x, x)
    with pytest.raises(ValueError, match="Not enough inputs have been provided"):
        ops.call(graph, x)
    with pytest.raises(ValueError, match="specified twice"):
        ops.call(graph, x, x, inputs_dict={graph.inputs[0]: x})
    with pytest.raises(ValueError, match="not in the called graph"):
        ops.call(graph, x, inputs_dict={x: x})
    with pytest.raises(popart_exception, match="but t__t1 is float32"):
        ops.call(graph, x, y)
    with pytest.raises(TypeError):
        ops.call(graph, x, "a")
    with pytest.raises(ValueError, match="not a tensor of"):
        ops.call(graph, x, graph.inputs[0])
    with pytest.raises(ValueError, match="Repeat count must be >= 0"):
        ops.repeat(graph, -1, x, x)
    wide = main.ir.create_graph(lambda a: (a, a), x)
    with pytest.raises(ValueError, match="To repeat the subgraph"):
        ops.repeat(wide, 2, x)
    info = ops.call_with_info(graph, x, 2.0)
    assert info.called_graph is graph
    assert info.graph_to_parent(graph.inputs[0]) is x
    assert info.parent_to_graph(x) is graph.inputs[0]
    assert info.graph_to_parent(graph.outputs[1]) is info.outputs[1]
    assert info.parent_input(0) is x
    with pytest.raises(IndexError):
        info.parent_output(2)
    with pytest.raises(ValueError, match="neither an input nor"):
        info.graph_to_parent(y)
    info.set_parent_input_modified(x)
    assert info._op.modifiesIndex(0)
    loop = ops.repeat_with_info(graph, 2, x, x)
    assert loop.called_graph is not graph
    assert loop.called_graph.called_graphs == (graph,)
    assert kinds(main)[-1] == "Loop"


def test_branches_are_checked(main):
    """Branches with different outputs, and conditions that are no scalars, are refused."""
    x = popxl.variable([1.0, 2.0])
    one, two = (main.ir.create_graph(f, x) for f in (lambda a: a, lambda a: (a, a)))
    other = main.ir.create_graph(lambda a: a[0], x)
    flag = popxl.constant(True)
    with pytest.raises(ValueError, match="same number of outputs"):
        ops.conditional(flag, one, two, [x], [x])
    with pytest.raises(ValueError, match="Outputs of the branches differ"):
        ops.conditional(flag, one, other, [x], [x])
    with pytest.raises(ValueError, match="one boolean"):
        ops.conditional(x, one, one, [x], [x])
    info = ops.conditional_with_info(flag, one, one, [x], [x])
    assert info.graph_to_parent(one.inputs[0]) is x


def test_tensors(main):
    """Shapes, types, places and operators of tensors; what Python would do with them otherwise."""
    x = popxl.variable(np.zeros((4, 2)), name="x")
    assert (x.shape, x.rank, x.nelms, len(x), x.dtype) == ((4, 2), 2, 8, 4, popxl.float32)
    assert x.strides() == (8, 4)
    assert x.spec == popxl.TensorSpec((4, 2), popxl.float32)
    with pytest.raises(UndefinedValue):
        _ = x.ipu
    with popxl.ipu(1), popxl.io_tiles():
        y = x + 1
    assert (y.ipu, y.tile_set, x.ipu) == (1, "io", 1)
    assert x[1:3].shape == (2, 2)
    assert x[1:3, 0].shape == (2,)
    assert x[[[0, 1], [1, 1]]].shape == (2, 2, 2)
    assert x[np.array([[True], [True], [False], [True]])].shape == (4, 2)
    assert x.T.shape == (2, 4)
    assert (3.0 - x).dtype == popxl.float32
    with pytest.raises(TypeError, match="not iterable"):
        list(x)
    with pytest.raises(TypeError):
        1 in x  # noqa: B015
    for key in ("a", True, 1.1):
        with pytest.raises(TypeError):
            x[key]
    with pytest.raises(ValueError, match="0-rank"):
        len(popxl.variable(1))
    with pytest.raises(RuntimeError):
        popxl.Tensor()
    with pytest.raises(popart_exception, match="same dtype"):
        x + popxl.variable(np.zeros(2, np.float16))
    with pytest.raises(popart_exception, match="matmul"):
        x @ x


def test_contexts():
    """The current graph, the main graph, and what must not be nested."""
    ir = popxl.Ir()
    with pytest.raises(RuntimeError):
        popxl.gcg()
    with ir.main_graph:
        graph = ir.create_empty_graph("sg")
        with graph:
            assert (popxl.gcg(), popxl.gmg(), popxl.gir()) == (graph, ir.main_graph, ir)
        with pytest.raises(RuntimeError, match="another Ir"), popxl.Ir().main_graph:
            pass
    with pytest.raises(TypeError):
        assert ir == 3


def test_sequences(main):
    """`in_sequence` chains operations; a block with False is one unordered unit in the chain."""
    x = popxl.variable(1.0)
    with popxl.in_sequence(True):
        a = (x + 1.0).producer
        with popxl.in_sequence(False):
            b, c = (x + 2.0).producer, (x + 3.0).producer
        d = (x + 4.0).producer
    e = (x + 5.0).producer
    assert (a.after, b.after, c.after, d.after, e.after) == ([], [a], [a], [b, c], [])

    @popxl.in_sequence()
    def build():
        return (x + 1.0).producer, (x + 1.0).producer

    first, second = build()
    assert second.after == [first]
    with pytest.raises(TypeError), popxl.in_sequence(None):
        pass


def test_exchanges(main):
    """Transfers of a block get one number; an overlapped exchange holds nothing else."""
    h2d = popxl.h2d_stream((), popxl.float32)
    buffer = popxl.remote_buffer((), popxl.float32, 2)
    with popxl.transforms.merge_exchange():
        x = ops.host_load(h2d)
        ops.remote_store(buffer, 1, x)
    numbers = [op.attributes.get("exchange") for op in main.ops if op.kind != "Init"]
    assert numbers == [0, 0]
    with pytest.raises(RuntimeError, match="overlap"), popxl.transforms.io_tile_exchange():
        x + 1.0


def test_remote_buffers_are_checked(main):
    """Numbers from 1 on; shapes, types and offsets are checked."""
    buffer = popxl.remote_buffer((2,), popxl.float32, 2)
    assert (buffer.remote_buffer_id, buffer.entries) == (1, 2)
    assert popxl.remote_buffer((2,), popxl.float32).remote_buffer_id == 2
    x = popxl.variable(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="shape"):
        ops.remote_store(buffer, 0, x)
    with pytest.raises(ValueError, match="dtype"):
        ops.remote_store(buffer, 0, popxl.variable(np.zeros(2, np.float16)))
    with pytest.raises(ValueError, match="out of range"):
        ops.remote_load(buffer, 2)
    with pytest.raises(ValueError, match="positive"):
        buffer.entries = 0
    with pytest.raises(ValueError, match="does not match"):
        popxl.remote_variable(np.zeros(3, np.float32), buffer)


def test_views_of_popart(main):
    """popart._internal.ir shows operations by class, with as many tensors as PopART makes."""
    h2d = popxl.h2d_stream((), popxl.float32)
    ops.host_load(h2d, "x")
    assert len(main.tensors) == 3
    assert kinds(main) == ["Init", "HostLoad"]
    view = main._pb_graph.getOps()[1]
    assert isinstance(view, _ir.op.exchange.HostLoadOp)
    assert not isinstance(view, _ir.op.AddOp)
    a = popxl.variable(1.0)
    b = ops.add_(a, a)
    view = main._pb_graph.getOps()[-1]
    assert (view.opType(), view.outId(0)) == ("AddLhsInplace", b.id)
    assert isinstance(view, _ir.op.AddLhsInplaceOp)
    assert view.modifiesIndex(0)
    assert not view.modifiesIndex(1)
    assert a._pb_tensor.tensorType() is _ir.TensorType.Variable
    assert popxl.Graph._from_pb(main._pb_graph) is main
    with pytest.raises(AttributeError, match="AddOp"):
        _ = _ir.op.AdOp


def test_hooks(main):
    """A hook sees each operation that is made, until it is removed."""
    seen = []
    handle = main.register_op_created_hook(lambda op: seen.append(op.kind))
    x = popxl.variable(1.0) + 1.0
    main.remove_op_created_hook(handle)
    _ = x * 2.0
    assert seen == ["Add"]
    with pytest.raises(KeyError):
        main.remove_op_created_hook(handle)


def test_types():
    """Types convert from and to those of NumPy, PyTorch and Python."""
    import torch

    assert popxl.dtype.as_dtype("half") is popxl.float16
    assert popxl.dtype.as_dtype(np.int32) is popxl.int32
    assert popxl.dtype.as_dtype(torch.bool) is popxl.bool
    assert popxl.dtype.as_dtype(float) is popxl.float32
    assert popxl.uint32.as_numpy() is np.uint32
    assert popxl.float8_143.as_numpy().itemsize == 1
    assert popxl.float16.as_torch() is torch.float16
    with pytest.raises(ValueError, match="equivalent"):
        popxl.float8_143.as_torch()
    with pytest.raises(ValueError, match="There is no"):
        popxl.dtype.as_dtype("float31")
    with pytest.raises(TypeError):
        popxl.dtype()


def test_seeds():
    """Seeds have the shape of batches and replicas; an offset is added to the first number."""
    seeds = popxl.create_seeds(3, 0, 4, 2, 3)
    assert (seeds.shape, seeds.dtype) == ((4, 2, 3, 2), np.uint32)
    np.testing.assert_array_equal(popxl.create_seeds(1, 2, 4, 2, 3), seeds)
    number = int(np.random.default_rng(3).integers(0, 2**64 - 1, dtype=np.uint64, endpoint=True))
    assert popxl.create_seeds(3).tolist() == list(divmod(number, 2**32))
    assert popxl.create_seeds(3).shape == (2,)


def test_a_picture_of_a_program():
    """The picture is XML with every graph and operation in it."""
    from xml.etree import ElementTree as ET

    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.zeros((2, 2), np.float32), name="<x>")
        graph = ir.create_graph(lambda a: ops.relu(a @ a), x)
        ops.repeat(graph, 3, x)
    text = "".join(ET.fromstring(ir.to_svg()).itertext())
    for name in ("main", "<x>", "MatMul", "Relu", "Loop", graph.id):
        assert name in text


def test_arguments_of_operations_are_checked(main):
    """Impossible shapes, reductions, bounds and missing coefficients are refused by name."""
    x, labels = popxl.variable(np.ones((1, 2, 3))), popxl.variable(np.zeros((1, 2)), popxl.int32)
    with pytest.raises(ValueError, match="Invalid shape value in reshape"):
        x.reshape((6, -2, 1))
    with pytest.raises(ValueError, match="at most one '-1' value"):
        x.reshape((-1, -1, 1))
    with pytest.raises(ValueError, match="one length"):
        ops.slice(x, start=[2], stop=[3, 4], axis=[2, 1])
    with pytest.raises(ValueError, match="reduction"):
        ops.nll_loss(x, labels, reduction="foo")
    step = popxl.variable(0.0)
    with pytest.raises(ValueError, match="Bias correction requires both"):
        ops.var_updates.adam_updater(x, x, time_step=step, beta1=0.9)
    with pytest.raises(ValueError, match="Weight decay requires weight"):
        ops.var_updates.lamb_updater(x, x, weight_decay=0.1)
    with pytest.raises(ValueError, match="AdaMax requires time_step"):
        ops.var_updates.adamax_updater(x, x)
    assert ops.slice(x, axis=0) is x
    ops.reshape_(x, (6,))
    assert x._pb_tensor.isAliased()
    n = len(main.tensors)
    seed = popxl.variable((1, 2), popxl.uint32)
    ops.split_random_seed(seed)
    assert len(main.tensors) == n + 5


def test_places_of_branches(main):
    """Inputs of a branch stand behind the condition, those of the other behind them."""
    a, b = popxl.variable(1), popxl.variable(2)
    yes, no = main.ir.create_graph(lambda x, y: x + y, a, b), main.ir.create_graph(lambda x: x, b)
    info = ops.conditional_with_info(popxl.constant(True), yes, no, [a, b], [b])
    assert info.called_graph == (yes, no)
    assert [info.graph_to_parent_input_index(i, True) for i in (0, 1)] == [1, 2]
    assert info.graph_to_parent_input_index(0, False) == 3
    assert info.parent_to_graph_input_index(3) == 0
    assert info.is_parent_index_in_then_branch(2)
    assert info.graph_to_parent_output_index(0, False) == 0
    with pytest.raises(IndexError):
        info.graph_to_parent_input_index(2, True)

    def by_ref(x: popxl.TensorByRef):
        return ops.add_(x, 1)

    writes = main.ir.create_graph(by_ref, a)
    with pytest.raises(NotImplementedError, match="by value"):
        ops.conditional(popxl.constant(True), writes, writes, [a], [a])
