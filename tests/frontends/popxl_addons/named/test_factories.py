"""Variables made by factories: by name, for groups of replicas, remote, sharded, from files."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from tremula.frontends.popxl.core.host_data import LazyArray


def test_data_comes_once_for_each_group():
    """A variable of several groups has a row for each, from one call of its data after another."""
    ir = popxl.Ir(replication=4)
    numbers = iter(np.arange(100, dtype=np.float32).reshape(-1, 1))
    with ir.main_graph:
        group = ir.replica_grouping(group_size=2)
        graph = ir.create_empty_graph("g")
        with graph:
            _, factory = addons.add_variable_input("w", numbers, replica_grouping=group)
        named = addons.NamedVariableFactories(b=factory, a=factory)
        made = named.init("layer")
    assert [t.name for t in made.tensors] == ["layer.a", "layer.b"]
    with popxl.Session(ir, "cpu") as session:
        np.testing.assert_array_equal(session.get_tensor_data(made.a), [[0], [1]])
        np.testing.assert_array_equal(session.get_tensor_data(made.b), [[2], [3]])


def test_lazy_data_of_several_groups_is_made():
    """Data that is made when needed fills the rows of a variable of several groups, too."""
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        group = ir.replica_grouping(group_size=2)
        lazy = LazyArray((1,), popxl.float32, lambda: np.array([3.0]))
        factory = addons.VariableFactory(lambda: lazy, replica_grouping=group)
        made = factory.create_tensor("w")
    with popxl.Session(ir, "cpu") as session:
        np.testing.assert_array_equal(session.get_tensor_data(made), [[3], [3]])


def test_remote_variables_are_sharded_like_their_buffers(tmp_path):
    """Shards of a remote variable are gathered when read; a file keeps it between programs."""
    data = np.arange(8, dtype=np.float32)
    for expected in (data, data + 1):
        ir = popxl.Ir(replication=2)
        with ir.main_graph, popxl.in_sequence():
            with ir.create_empty_graph("g"):
                _, factory = addons.add_variable_input("w", lambda: data)
            named = addons.NamedVariableFactories(w=factory)
            buffers = addons.named_variable_buffers(named)
            assert buffers.w.tensor_shape == (4,)
            made = named.init_remote(buffers, 0, "m", memmap_dir=tmp_path)
            shard = addons.load_remote(buffers, 0)
            addons.store_remote(buffers, addons.NamedTensors(w=shard.w + 1), 0)
        with popxl.Session(ir, "cpu") as session:
            np.testing.assert_array_equal(session.get_tensor_data(made.w), expected)
            session.run()
    assert (tmp_path / "m.w.npy").stat().st_size == 32


def test_files_that_do_not_hold_the_variable(tmp_path):
    """A file that is too short is an error that names it."""
    (tmp_path / "w.npy").write_bytes(b"1234")
    ir = popxl.Ir()
    with ir.main_graph:
        with ir.create_empty_graph("g"):
            _, factory = addons.add_variable_input("w", lambda: np.zeros(8, np.float32))
        named = addons.NamedVariableFactories(w=factory)
        buffers = addons.named_variable_buffers(named)
        with pytest.raises(ValueError, match=r"w\.npy is too short"):
            named.init_remote(buffers, memmap_dir=tmp_path)


def test_data_must_be_given_one_after_another():
    """An array is no source of arrays, an empty iterable none either, and errors are kept."""
    with pytest.raises(ValueError, match="lambda: data"):
        addons.VariableFactory(np.zeros(3))
    with pytest.raises(ValueError, match="empty"):
        addons.VariableFactory([])
    with pytest.raises(ValueError, match="raised an error"):
        addons.VariableFactory(lambda: 1 / 0)
