"""Replicas: memory, vertex state, streams and control flow of each."""

import io

import numpy as np
import pytest

from tests.runtime.codelets import Mark
from tests.runtime.programs import ONE_THREAD, adder, loaded, new_graph, variable
from tremula import (
    BOOL,
    INT,
    UNSIGNED_CHAR,
    Block,
    Copy,
    CrossReplicaCopy,
    Engine,
    Execute,
    If,
    IPUModel,
    PrintTensor,
    ReplicatedStreamMode,
    Sequence,
    Sync,
    errors,
)


def test_replicas_have_their_own_memory():
    """Each replica computes on its own data; the replication index tells them apart."""
    graph = new_graph(n_ipus=3, replicas=3)
    index = graph.add_replication_index_constant()
    total = variable(graph, INT, [], "total", 10)
    engine = loaded(graph, adder(graph, total, index.reinterpret(INT).reshape([1])))
    engine.run()
    assert [int(engine.read_tensor("total", replica=r)) for r in range(3)] == [10, 11, 12]
    engine.write_tensor("total", 5)
    engine.write_tensor("total", 7, replica=1)
    assert [int(engine.read_tensor("total", replica=r)) for r in range(3)] == [5, 7, 5]


def test_replicas_have_their_own_vertex_state():
    """State of vertices is kept per replica."""
    graph = new_graph(n_ipus=2, replicas=2)
    flags = variable(graph, BOOL, [1], "flags")
    data = variable(graph, UNSIGNED_CHAR, [1], "data", 2)
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=0)
    engine = loaded(graph, Execute(cs))
    seen = []
    for _ in range(2):
        engine.run()
        seen.append([bool(engine.read_tensor("flags", replica=r)) for r in range(2)])
    assert seen == [[True, True], [False, False]]


def test_cross_replica_copy_permutes():
    """CrossReplicaCopy sends each replica's tensor where the map says, all at once."""
    graph = new_graph(n_ipus=3, replicas=3)
    x = variable(graph, INT, [2], "x")
    engine = loaded(graph, CrossReplicaCopy(x, x, {0: 1, 1: 2, 2: 0}))
    for r in range(3):
        engine.write_tensor("x", [r, 10 * r], replica=r)
    engine.run()
    assert [engine.read_tensor("x", replica=r).tolist() for r in range(3)] == [
        [2, 20],
        [0, 0],
        [1, 10],
    ]


def test_replicated_streams():
    """REPLICATE takes a chunk per replica, BROADCAST one for all; replicas may have own buffers."""
    graph = new_graph(n_ipus=2, replicas=2)
    x, y = (variable(graph, INT, [2], name) for name in "xy")
    each = graph.add_host_to_device_fifo("each", INT, 2)
    same = graph.add_host_to_device_fifo("same", INT, 2, ReplicatedStreamMode.BROADCAST)
    engine = Engine(graph, Sequence(Copy(each, x), Copy(same, y)), ONE_THREAD)
    for r in range(2):
        engine.connect_stream("each", np.array([r, r], np.int32), replica=r)
    engine.connect_stream("same", np.array([7, 8, 9, 10], np.int32))
    engine.load().run()
    assert [engine.read_tensor("x", replica=r).tolist() for r in range(2)] == [[0, 0], [1, 1]]
    assert [engine.read_tensor("y", replica=r).tolist() for r in range(2)] == [[7, 8]] * 2
    engine.run()
    assert [engine.read_tensor("y", replica=r).tolist() for r in range(2)] == [[9, 10]] * 2


def test_replicas_must_agree_about_control_flow():
    """A predicate that differs between replicas is an error that names the program."""
    graph = new_graph(n_ipus=2, replicas=2)
    flag = variable(graph, BOOL, [], "flag", False)
    engine = loaded(graph, If(flag, Sequence(Sync())))
    engine.run()
    engine.write_tensor("flag", True, replica=1)
    with pytest.raises(errors.GraphReplicationError) as caught:
        engine.run()
    assert "If: the replicas disagree about the predicate." in str(caught.value)
    assert "test_replicas.py:" in str(caught.value)


def test_replicas_that_do_not_exist():
    """Naming a replica that is not there is an error."""
    graph = new_graph(n_ipus=2, replicas=2)
    variable(graph, INT, [], "x", 0)
    graph.add_remote_buffer("store", INT, 1)
    stream = graph.add_host_to_device_fifo("in", INT, 1)
    engine = loaded(graph, Sequence())
    for act in (
        lambda: engine.read_tensor("x", replica=2),
        lambda: engine.write_tensor("x", 1, replica=2),
        lambda: engine.copy_to_remote_buffer([1], "store", replica=2),
        lambda: engine.connect_stream(stream.handle, np.zeros(1, np.int32), replica=2),
    ):
        with pytest.raises(
            errors.GraphReplicationError, match="replica 2 does not exist: the graph"
        ):
            act()


def test_printing_names_the_replica():
    """PrintTensor of a replicated graph prints every replica with its number."""
    graph = new_graph(n_ipus=2, replicas=2)
    x = variable(graph, INT, [], "x", 4)
    engine = loaded(graph, Block(PrintTensor("x", x)))
    engine.print_stream = io.StringIO()
    engine.run()
    assert engine.print_stream.getvalue() == "x[0]: 4\nx[1]: 4\n"


def test_load_checks_the_device():
    """A program is refused by a device with another number of IPUs or another architecture."""
    graph = new_graph(n_ipus=2, replicas=2)
    engine = Engine(graph, Sequence(), ONE_THREAD)
    engine.load(IPUModel("ipu2", n_ipus=2).create_device())
    for model in (IPUModel("ipu2"), IPUModel("ipu1", n_ipus=2)):
        with pytest.raises(errors.GraphReplicationError, match="was compiled for 2 IPUs of ipu2"):
            engine.load(model.create_device())
