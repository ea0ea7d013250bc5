"""Remote buffers, host functions and printing, from a running program."""

import io

import numpy as np
import pytest

from tests.runtime.programs import loaded, new_graph, variable
from tremula import (
    FLOAT,
    INT,
    UNSIGNED_INT,
    Call,
    Copy,
    PrintTensor,
    PrintTensorFmt,
    Sequence,
    errors,
)


def test_remote_buffers_move_rows():
    """Rows go to and from the device by an offset tensor, one or several at a time."""
    graph = new_graph()
    x = variable(graph, INT, [2, 3], "x")
    rows = variable(graph, UNSIGNED_INT, [2], "rows")
    buffer = graph.add_remote_buffer("store", INT, 3, repeats=4)
    one = graph.add_remote_buffer("one", INT, 3)
    engine = loaded(
        graph,
        [Copy(buffer, x, rows), Copy(x, buffer, rows), Sequence(Copy(x[1], one), Copy(one, x[0]))],
    )
    for row in range(4):
        engine.copy_to_remote_buffer(np.arange(3) + 10 * row, "store", row)
    engine.write_tensor("rows", np.array([3, 1], np.uint32))
    engine.run(0)
    assert engine.read_tensor("x").tolist() == [[30, 31, 32], [10, 11, 12]]
    engine.write_tensor("rows", np.array([0, 2], np.uint32))
    engine.run(1)
    assert engine.copy_from_remote_buffer("store", 2).tolist() == [10, 11, 12]
    assert engine.copy_from_remote_buffer("store", 3).tolist() == [30, 31, 32]
    engine.run(2)
    assert engine.read_tensor("x").tolist() == [[10, 11, 12]] * 2
    engine.write_tensor("rows", np.array([0, 4], np.uint32))
    with pytest.raises(
        errors.RuntimeFailure, match="row 4 of remote buffer 'store' does not exist"
    ):
        engine.run(0)
    with pytest.raises(errors.StreamConnectionError, match="has 4 rows, row 9 does not exist"):
        engine.copy_from_remote_buffer("store", 9)


def test_host_functions_compute_with_tensors():
    """Call of a host function passes inputs and stores what it puts into outputs."""
    graph = new_graph()
    x = variable(graph, FLOAT, [4], "x", [1, 2, 3, 4])
    n = variable(graph, INT, [1], "n", 0)
    function = graph.add_host_function("sum", [(FLOAT, 2)], [(INT, 1)])
    engine = loaded(graph, Call(function, [x[::2]], [n]))
    with pytest.raises(errors.StreamConnectionError, match="host function 'sum' is called but not"):
        engine.run()

    def add_up(inputs, outputs):
        outputs[0][0] = inputs[0].sum()

    engine.connect_host_function("sum", add_up)
    engine.run()
    assert engine.read_tensor("n").tolist() == [4]


def test_print_tensor_prints():
    """PrintTensor writes title and values to the engine's stream, in program order."""
    graph = new_graph()
    x = variable(graph, INT, [3], "x", [1, -2, 3])
    fmt = PrintTensorFmt(open_bracket="(", close_bracket=")")
    engine = loaded(
        graph, Sequence(PrintTensor("x", x), PrintTensor(x[1], fmt), PrintTensor(x, fmt))
    )
    engine.print_stream = io.StringIO()
    engine.run()
    assert engine.print_stream.getvalue() == "x: [ 1 -2  3]\n-2\n( 1 -2  3)\n"
