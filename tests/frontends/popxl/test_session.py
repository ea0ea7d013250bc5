"""Sessions: arrays in and out, weights there and back, and everything that is refused."""

import numpy as np
import pytest

import popxl
from popxl import ops


def adder(n_transfers=1, replication=1):
    """Adds a variable to what a stream brings, once for each transfer."""
    ir = popxl.Ir(replication=replication)
    ir.num_host_transfers = n_transfers
    with ir.main_graph:
        v = popxl.variable(np.float32([10, 20]), name="v")
        x = popxl.h2d_stream((2,), popxl.float32, "x")
        y = popxl.d2h_stream((2,), popxl.float32, "y")

        def body(v):
            ops.host_store(y, ops.host_load(x) + v)

        graph = ir.create_graph(body, v)
        ops.repeat(graph, n_transfers, v)
    return ir, x, y, v


@pytest.mark.parametrize("replication", [1, 2])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("n_runs", [1, 2])
def test_each_transfer_takes_the_next_element(n, replication, n_runs):
    """Arrays are [transfers, replicas, …] without dimensions of size 1, interpreted or compiled."""
    ir, x, y, _ = adder(n, replication)
    shape = (*(k for k in (n, replication) if k > 1), 2)
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    with popxl.Session(ir) as session:
        for _ in range(n_runs):
            out = session.run({x: data})
    np.testing.assert_array_equal(out[y], data + np.float32([10, 20]))


def test_long_loops_are_loops_of_the_compiled_program():
    """A loop of many rounds with streams and a variable that it changes: the same both ways."""
    result = []
    for n_runs in (1, 2):
        ir = popxl.Ir()
        ir.num_host_transfers = 100
        with ir.main_graph:
            total = popxl.variable(np.float32([0, 0]))
            x = popxl.h2d_stream((2,), popxl.float32, "x")
            y = popxl.d2h_stream((2,), popxl.float32, "y")

            def body(t, total: popxl.TensorByRef):
                ops.add_(total, ops.host_load(x))  # noqa: B023
                ops.host_store(y, total * t)  # noqa: B023
                return t + 1.0

            start = popxl.constant(1.0)
            graph = ir.create_graph(body, start, total)
            (last,) = ops.repeat(graph, 100, start, total)
            end = popxl.d2h_stream((), popxl.float32, "end")
            ops.host_store(end, last)
        data = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
        with popxl.Session(ir) as session:
            for _ in range(n_runs):
                session.write_variable_data(total, np.zeros(2, np.float32))
                out = session.run({x: data})
            result.append((out[y], out[end].reshape(-1)[0], session.get_tensor_data(total)))
            assert (session._compiled is not None) == (n_runs == 2)
    np.testing.assert_allclose(
        result[0][0], np.cumsum(data, 0) * np.arange(1, 101)[:, None], 1e-3, 1e-3
    )
    for a, b in zip(*result, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_weights_come_and_go():
    """Contexts copy weights: in at the first, out at the last; written data reaches the device."""
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.float32([1, 2]), name="v")
        ops.add_(v, 1.0)
    session = popxl.Session(ir)
    with session:
        assert session.is_attached
        with session:
            session.run()
        assert session.is_attached
        session.run()
        assert not v.in_sync_with_ipu
    assert not session.is_attached
    assert session.get_tensor_data(v).tolist() == [3, 4]
    with session:
        session.write_variable_data(v, np.float32([7, 7]))
        session.run()
        session.run()
    assert session.get_tensors_data([v]) == {v: pytest.approx([9, 9])}


def test_refusals():
    """Streams, shapes, types and states that do not fit are refused by name."""
    ir, x, y, v = adder()
    session = popxl.Session(ir)
    data = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="not attached"):
        session.run({x: data})
    with session:
        with pytest.raises(ValueError, match=r"missing \['x'\]"):
            session.run({})
        with pytest.raises(ValueError, match=r"unexpected \['y'\]"):
            session.run({x: data, y: data})
        with pytest.raises(ValueError, match="must have shape"):
            session.run({x: np.zeros(3, np.float32)})
        with pytest.raises(ValueError, match="dtype"):
            session.run({x: np.zeros(2, np.int32)})
        with pytest.raises(TypeError, match="by stream"):
            session.run({"x": data})
        with pytest.raises(TypeError, match="convert the array"):
            session.write_variable_data(v, np.zeros(2, np.int32))
        with pytest.raises(ValueError, match="on the host"):
            session.write_variable_data(v, np.zeros(3, np.float32))
        with pytest.raises(TypeError, match="not of type Constant or Variable"):
            session.get_tensor_data(v.graph.tensors[-1])
    assert session.expected_inputs() == [x]
    with pytest.raises(ValueError, match="device_desc"):
        popxl.Session(ir, "gpu")
    with pytest.raises(RuntimeError, match="after a Session"):
        ir.replication_factor = 2


def test_too_many_transfers():
    """Loading more often than there are transfers says which stream, and what to set."""
    from popart import popart_runtime_error

    ir, x, _, _ = adder(3)
    ir.num_host_transfers = 2
    with (
        popxl.Session(ir) as session,
        pytest.raises(popart_runtime_error, match="num_host_transfers"),
    ):
        session.run({x: np.zeros((2, 2), np.float32)})


def test_branches():
    """The branch that a boolean chooses runs, interpreted or compiled."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.h2d_stream((), popxl.float32, "x")
        value = ops.host_load(x)
        yes = ir.create_graph(lambda t: t * 2.0, value)
        no = ir.create_graph(lambda t: -t, value)
        (out,) = ops.conditional(ops.greater(value, popxl.constant(0.0)), yes, no, [value], [value])
        y = popxl.d2h_stream((), popxl.float32, "y")
        ops.host_store(y, out)
    with popxl.Session(ir) as session:
        result = [float(session.run({x: np.float32(v)})[y]) for v in (3, -3, 3, -3)]
    assert result == [6, 3, 6, 3]


def test_memory_maps(tmp_path):
    """A map is used without a copy and written back; missing and short files are errors."""
    path = tmp_path / "weights.bin"
    np.float32([1, 2, 3]).tofile(path)
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((3,), popxl.float32, 1)
        data = popxl.open_memmap(path, (3,), popxl.float32)
        v = popxl.remote_variable(data, buffer)
        t = ops.remote_load(buffer, 0)
        ops.remote_store(buffer, 0, t + 1.0)
    with popxl.Session(ir) as session:
        session.run()
    assert np.fromfile(path, np.float32).tolist() == [2, 3, 4]
    assert v.data is data
    with pytest.raises(FileNotFoundError, match="does not exist"):
        popxl.open_memmap(tmp_path / "other.bin", (3,), popxl.float32)
    with pytest.raises(ValueError, match="too short: 12 bytes"):
        popxl.open_memmap(path, (4,), popxl.float32)
    with popxl.Ir().main_graph:
        with pytest.raises(ValueError, match="without a copy"):
            popxl.variable(data, popxl.float16)
        kept = popxl.variable(popxl.open_memmap(path, (3,), popxl.float32, "r"))
        with popxl.Session(kept.ir) as session:
            ops_ir = session.get_tensor_data(kept)
            with pytest.raises(ValueError, match="read-only"):
                session.write_variable_data(kept, np.zeros(3, np.float32))
    assert ops_ir.tolist() == [2, 3, 4]


def test_lazy_weights_are_made_when_they_are_read():
    """A lazy array costs nothing until a session reads it."""
    made = []

    def make():
        made.append(1)
        return np.ones((2, 3), np.float16)

    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((2, 3), popxl.float16, 2)
        popxl.remote_variable(popxl.LazyArray((2, 3), popxl.float16, make), buffer, 1)
        huge = popxl.remote_buffer((1 << 20, 1 << 20), popxl.float16, 4)
        popxl.remote_variable(popxl.LazyArray((1 << 20, 1 << 20), popxl.float16), huge)
        out = ops.remote_load(buffer, 1)
        y = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(y, out)
    assert not made
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[y], np.ones((2, 3)))
    assert made == [1]
