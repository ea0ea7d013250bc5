"""Writes, views and calls in any order: compiled programs do what the interpreter does."""

import random

import numpy as np
import pytest

import popxl
from popxl import ops


def _graphs(ir, x):
    """Graphs that write an input: by reference, which the caller sees, or a copy of it."""

    def by_reference(a: popxl.TensorByRef, b):
        ops.scaled_add_(a, b, 0.5, 0.25)
        return ops.reshape_(a, (3, 2))

    def by_value(a, b):
        ops.add_(a, b)
        return ops.transpose(a)

    return [ir.create_graph(f, x, x) for f in (by_reference, by_value)]


def _step(pick, tensors, graphs):
    """One more operation on tensors of shape (2, 3) that are there; what it makes."""
    a, b = pick.choice(tensors), pick.choice(tensors)
    return pick.choice([
        lambda: ops.add(a, b),
        lambda: ops.add_(a, b * 0.5),
        lambda: ops.relu_(a),
        lambda: ops.reshape_(ops.reshape_(a, (3, 2)), (2, 3)),
        lambda: ops.transpose_(ops.transpose_(a)),
        lambda: ops.slice_(ops.concat_([a, b], 0), 1, 3, axis=0),
        lambda: ops.detach_(a),
        lambda: ops.reshape(ops.call(graphs[0], a, b)[0], (2, 3)),
        lambda: ops.transpose(ops.call(graphs[1], a, b)[0]),
        lambda: ops.var_updates.copy_var_update_(a, b),
    ])()  # fmt: skip


def program(seed: int):
    """A program of ten random operations on three variables, all of them stored at the end."""
    pick = random.Random(seed)
    rng = np.random.default_rng(seed)
    ir = popxl.Ir()
    with ir.main_graph:
        variables = [popxl.variable(rng.normal(size=(2, 3)).astype(np.float32)) for _ in range(3)]
        graphs, tensors = _graphs(ir, variables[0]), list(variables)
        for _ in range(10):
            tensors.append(_step(pick, tensors, graphs))
        streams = []
        for t in tensors:
            streams.append(popxl.d2h_stream(t.shape, t.dtype))
            ops.host_store(streams[-1], t)
    return ir, variables, streams


@pytest.mark.parametrize("seed", range(12))
def test_compiled_programs_write_what_the_interpreter_writes(seed):
    """All values, and all variables after the run, are equal to the bit."""
    result = []
    for is_compiled in (False, True):
        ir, variables, streams = program(seed)
        with popxl.Session(ir) as session:
            if is_compiled:
                session._compiled = session._compile(for_tiles=False, runs_on_tiles=False)
            out = session.run()
            result.append(
                [out[s] for s in streams] + [session.get_tensor_data(v) for v in variables]
            )
    for literal, compiled in zip(*result, strict=True):
        np.testing.assert_array_equal(literal, compiled)


def test_joined_in_place():
    """What is written to a concatenation in place is written to its parts, and the reverse."""
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable([1.0, 2.0]), popxl.variable([3.0])
        whole = ops.concat_([a, b])
        ops.add_(whole, 10.0)
        ops.add_(b, 100.0)
        out = popxl.d2h_stream(whole.shape, whole.dtype)
        ops.host_store(out, whole)
    with popxl.Session(ir) as session:
        assert session.run()[out].tolist() == [11, 12, 113]
        assert session.get_tensor_data(a).tolist() == [11, 12]
        assert session.get_tensor_data(b).tolist() == [113]


def test_by_value_and_by_reference():
    """A graph that writes its input changes the caller's tensor only if it gets a reference."""
    ir = popxl.Ir()
    with ir.main_graph:
        a, b, c = (popxl.variable(1.0) for _ in range(3))
        graph = ir.create_graph(lambda t: ops.add_(t, 1.0), a)
        ops.call(graph, a)
        ops.call_with_info(graph, b).set_parent_input_modified(b)

        def by_ref(t: popxl.TensorByRef):
            ops.add_(t, 1.0)

        loop = ir.create_graph(by_ref, c)
        ops.repeat(loop, 5, c)
    with popxl.Session(ir) as session:
        session.run()
        assert [float(session.get_tensor_data(t)) for t in (a, b, c)] == [1, 2, 6]
        session.run()  # compiled
        assert [float(session.get_tensor_data(t)) for t in (a, b, c)] == [1, 3, 11]
