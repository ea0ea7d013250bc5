"""`import poptorch`: light, complete, and with the submodules scripts touch."""

import importlib
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

import poptorch


def test_import_is_light():
    """`import poptorch` alone does not load PyTorch."""
    code = "import poptorch, sys; print('torch' in sys.modules, poptorch.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    light, version = done.stdout.split()
    assert light == "False"
    assert "-" in version


def test_unknown_names():
    """An unknown name is an AttributeError; known ones are listed."""
    with pytest.raises(AttributeError, match="module 'poptorch' has no attribute 'Optons'"):
        _ = poptorch.Optons
    assert {"Options", "trainingModel", "DataLoader", "optim", "enums"} <= set(dir(poptorch))


@pytest.mark.parametrize(
    "name", "options enums poptorch_core profiling testing _impl _logging _args_parser".split()
)
def test_submodules(name):
    """Submodules are there without being imported by name."""
    assert getattr(poptorch, name) is importlib.import_module(f"poptorch.{name}")


def test_own_tensors_are_real():
    """No fake device is traced or compiled for."""
    assert not poptorch._impl.isDispatchTracing()
    assert not poptorch.poptorch_core.isCompilingWithDispatcher()


def test_allclose():
    """allclose goes through tuples and lists, and rejects other structures."""
    a, b = torch.ones(2), torch.ones(2) + 1e-9
    assert poptorch.testing.allclose((a, [b]), (b, [a]))
    assert not poptorch.testing.allclose((a, [b]), (b, [a + 1]))
    with pytest.raises(AssertionError, match="expected 2 items"):
        poptorch.testing.allclose((a, a), (a,))
    with pytest.raises(AssertionError, match="expected <class 'tuple'>"):
        poptorch.testing.allclose((a,), [a])


def test_profiling_channel(monkeypatch):
    """Instrumented methods and tracepoints are stretches of PyTorch's profiler."""
    seen = []

    @contextmanager
    def record_function(name):
        seen.append(name)
        yield

    monkeypatch.setattr(torch.profiler, "record_function", record_function)

    class Worker:
        def work(self, x):
            return x + 1

    channel = poptorch.profiling.Channel("data")
    worker = Worker()
    assert channel.instrument(worker, "work") is worker
    assert worker.work(2) == 3
    with channel.tracepoint("load"):
        pass
    assert seen == ["data::work", "data::load"]
    with pytest.raises(AttributeError, match="rest"):
        channel.instrument(worker, "rest")
