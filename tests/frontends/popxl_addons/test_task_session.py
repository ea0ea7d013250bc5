"""Sessions of a task: streams, steps, checkpoints in folders, mapped variables."""

import json

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear
from popxl_addons.ops.streams import host_load, host_store
from popxl_addons.task_session import TaskSession, initialise_memmap_dir_from_checkpoint

X = np.random.default_rng(0).normal(size=6).astype(np.float32)


class Model(addons.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(4)
        self.last = Linear(2, bias=False)

    def build(self, x):
        return self.last(self.first(x))


class Loader:
    """A data loader that counts."""

    def __init__(self):
        self.position = 0

    def save(self, filename):
        with open(filename, "w") as file:
            file.write(str(self.position))

    def resume(self, filename):
        with open(filename) as file:
            self.position = int(file.read())


def session_of(memmap_dir=None, **options):
    """A session of the model, whose last weight each run adds one to."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        _, stream, x = host_load(X, popxl.float32, "x")
        factories, graph = Model().create_graph(x)
        variables = factories.init("model", memmap_dir=memmap_dir)
        outputs = [host_store(*graph.bind(variables).call(x))]
        weight = variables.last.weight
        ops.var_updates.accumulate_(weight, popxl.constant(np.ones(weight.shape, np.float32)))
    return TaskSession([stream], outputs, variables, ir=ir, device_desc="ipu_hw", **options)


def test_checkpoints_are_folders(tmp_path):
    """Variables, the number of steps, further information and the loader come back."""
    with session_of() as session:
        session.dataloader = Loader()
        session.dataloader.position = 7
        session.add_session_state_info({"rate": 0.5})
        (stream,) = session.inputs
        for _ in range(2):
            first = session.run({stream: X})[session.outputs[0]]
        session.save_checkpoint(str(tmp_path / "one"))
        values = session.get_named_tensors_data()
    assert sorted(p.name for p in (tmp_path / "one" / "model").iterdir()) == [
        "first.bias.npz", "first.weight.npz", "last.weight.npz"
    ]  # fmt: skip
    assert json.loads((tmp_path / "one" / "session_info.json").read_text())["steps"] == 2
    with session_of() as session:
        session.dataloader = Loader()
        session.load_checkpoint(str(tmp_path / "one"), report_missing="none")
        assert session.session_state == {"steps": 2, "rate": 0.5}
        assert session.dataloader.position == 7
        result = session.run({session.inputs[0]: X})[session.outputs[0]]
        hidden = X @ values.first.weight + values.first.bias
        np.testing.assert_allclose(result, hidden @ values.last.weight, rtol=1e-4)
        assert not np.allclose(result, first)
        with session_of() as other:
            other.load_from_session(session)
            copied = other.get_named_tensors_data()
    np.testing.assert_array_equal(copied.first.weight, values.first.weight)


def test_old_checkpoints_are_deleted_and_missing_files_named(tmp_path):
    """Only the newest is there; a missing variable is an error on request."""
    with session_of(max_checkpoints=1) as session:
        for name in ("one", "two"):
            session.save_checkpoint(str(tmp_path / name))
    assert not (tmp_path / "one").exists()
    (tmp_path / "two" / "model" / "last.weight.npz").unlink()
    with session_of() as session:
        with pytest.raises(ValueError, match=r"not in the checkpoint: last\.weight"):
            session.load_checkpoint(str(tmp_path / "two"), report_missing="error")
        session.load_checkpoint(str(tmp_path / "two"), report_missing="none")
        with pytest.raises(ValueError, match="save and resume"):
            session.dataloader = object()


def test_mapped_variables(tmp_path):
    """Variables in files are read from them, and what runs write is in them."""
    maps = tmp_path / "maps"
    session = session_of(maps)
    weight = session.get_tensor_data(session.state.last.weight)
    assert isinstance(weight, np.memmap)
    assert weight is session.state.last.weight._memmap_arr
    before = weight.copy()
    with session:
        session.run({session.inputs[0]: X})
        after = np.array(session.get_tensor_data(session.state.last.weight))
        session.save_checkpoint(str(tmp_path / "checkpoint"))
    np.testing.assert_allclose(after, before + 1, rtol=1e-6)
    file = np.fromfile(maps / "model.last.weight.npy", np.float32).reshape(4, 2)
    np.testing.assert_array_equal(file, after)
    initialise_memmap_dir_from_checkpoint(tmp_path / "checkpoint", tmp_path / "again")
    other = session_of(tmp_path / "again")
    np.testing.assert_array_equal(other.get_tensor_data(other.state.last.weight), after)


def test_streams_by_name_and_number():
    """Streams are attributes, entries and numbered; iterating gives the streams."""
    with popxl.Ir().main_graph:
        streams = addons.InputStreams(x=((2,), popxl.float32), y=((), popxl.int32))
    assert streams.x is streams["x"] is streams[0] is next(iter(streams))
    assert streams[-1:] == [streams.y]
    assert list(streams.keys()) == ["x", "y"]
    assert len(streams) == 2
    with pytest.raises(AttributeError, match="available: x, y"):
        _ = streams.z
    with pytest.raises(KeyError, match="available: x, y"):
        _ = streams["z"]
