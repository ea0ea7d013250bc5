"""Saved models and the executable cache: what files hold, who reads them, what goes wrong."""

import json
import os
import zipfile

import pytest
import torch
from torch import nn

import poptorch
from tests.scripts import run_script
from tremula.ir.run import tile_cache, tile_program


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, y=None):
        out = self.drop(self.linear(x))
        return out if y is None else (out, nn.functional.mse_loss(out, y))


X, Y = torch.ones(4, 3), torch.zeros(4, 2)


def training(**choices):
    model = Model()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    return poptorch.trainingModel(model, optimizer=optimizer, **choices)


def test_training_goes_on(tmp_path):
    """A loaded training model continues exactly: weights, optimiser, random numbers."""
    first = training(options=poptorch.Options().randomSeed(5))
    first(X, Y)
    first.save(tmp_path / "deep" / "folder" / "model.poptorch")
    second = poptorch.load(tmp_path / "deep" / "folder" / "model.poptorch")
    assert second.isCompiled()
    for _ in range(2):
        for a, b in zip(first(X, Y), second(X, Y), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(first.model.linear.weight, second.model.linear.weight)
    assert first.model.linear.weight is not second.model.linear.weight
    assert type(second.model).__name__ == "PoptorchModel"
    state = second.current_optimizer.state_dict()["ipu_state"]
    assert state["Step___linear.weight"] == 3


def test_random_state_is_optional(tmp_path):
    """Without save_rng_state the loaded model starts its own stream."""
    first = training(options=poptorch.Options().randomSeed(5))
    first(X, Y)
    first.save(tmp_path / "m", save_rng_state=False)
    second = poptorch.load(tmp_path / "m")
    assert second.rng_state[1:] != first.rng_state[1:]


def test_a_folder_gets_a_name(tmp_path, capfd):
    """Saving into a folder uses model.poptorch, and says so; loading finds it."""
    model = poptorch.inferenceModel(nn.Linear(3, 2))
    expected = model(X)
    model.save(tmp_path)
    assert (tmp_path / "model.poptorch").exists()
    assert "is a folder" in capfd.readouterr().err
    assert torch.equal(poptorch.load(tmp_path)(X), expected)


def test_compile_and_export_offline(tmp_path):
    """A model compiled for a machine elsewhere is saved, and runs once it is loaded."""
    options = poptorch.Options().useIpuModel(False).useOfflineIpuTarget()
    layer = nn.Linear(3, 2)
    poptorch.inferenceModel(layer, options).compileAndExport(tmp_path / "m", X)
    loaded = poptorch.load(tmp_path / "m")
    assert loaded.options.connection_type == poptorch.ConnectionType.Always
    torch.testing.assert_close(loaded(X), layer(X).detach())


def test_options_can_be_edited(tmp_path):
    """edit_opts_fn changes the options before the model is made."""
    poptorch.inferenceModel(nn.Linear(3, 2)).compileAndExport(tmp_path / "m", X)
    loaded = poptorch.load(tmp_path / "m", lambda options: options.modelName("other"))
    assert loaded.options.model_name == "other"


def test_executables_alone(tmp_path):
    """Without the model a file can only be given to a model; it fixes the arguments."""
    layer = nn.Linear(3, 2)
    poptorch.inferenceModel(layer).compileAndExport(tmp_path / "m", X, export_model=False)
    with pytest.raises(AssertionError, match=r"export_model=False.*loadExecutable"):
        poptorch.load(tmp_path / "m")
    other = nn.Linear(3, 2)
    model = poptorch.inferenceModel(other)
    model.loadExecutable(tmp_path / "m")
    assert model.isCompiled()
    torch.testing.assert_close(model(X), other(X).detach())
    with pytest.raises(poptorch.Error, match="Shape mismatch"):
        model(torch.ones(2, 3))
    with pytest.raises(poptorch.Error, match="already compiled"):
        model.loadExecutable(tmp_path / "m")


def test_executables_of_the_other_kind(tmp_path):
    """A training model does not take an inference program."""
    poptorch.inferenceModel(nn.Linear(3, 2)).compileAndExport(tmp_path / "m", X)
    with pytest.raises(poptorch.Error, match="holds a program for inference"):
        training().loadExecutable(tmp_path / "m")


@pytest.mark.slow
def test_versions(tmp_path):
    """A file of another version is rejected."""
    poptorch.inferenceModel(nn.Linear(3, 2)).compileAndExport(tmp_path / "m", X)
    changed = tmp_path / "changed"
    with zipfile.ZipFile(tmp_path / "m") as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "about.json":
                data = json.dumps({**json.loads(data), "version": "0.0.0"})
            new.writestr(name, data)
    with pytest.raises(AssertionError, match="PopTorch version mismatch"):
        poptorch.load(changed)


def test_other_files(tmp_path):
    """What is no saved model says so."""
    (tmp_path / "text").write_text("hello")
    with pytest.raises(poptorch.Error, match="is not a saved PopTorch model"):
        poptorch.load(tmp_path / "text")
    with pytest.raises(poptorch.Error, match="is not a saved PopTorch model"):
        poptorch.load(tmp_path / "missing")


def test_saving_needs_a_program(tmp_path):
    """There is nothing to save before compiling."""
    with pytest.raises(poptorch.Error, match="Model has not been compiled"):
        training().save(tmp_path / "m")


class Danger:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_load_executable_runs_no_code(tmp_path):
    """Arguments that could run code are rejected by loadExecutable."""
    poptorch.inferenceModel(nn.Linear(3, 2)).compileAndExport(tmp_path / "m", X)
    bad = tmp_path / "bad"
    with zipfile.ZipFile(tmp_path / "m") as old, zipfile.ZipFile(bad, "w") as new:
        for name in old.namelist():
            if name == "arguments.pt":
                with new.open(name, "w") as file:
                    torch.save(((Danger(tmp_path / "made"),), {}), file)
            else:
                new.writestr(name, old.read(name))
    with pytest.raises(poptorch.Error, match="Reading those could run code"):
        poptorch.inferenceModel(nn.Linear(3, 2)).loadExecutable(bad)
    assert not (tmp_path / "made").exists()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    """A module that cannot be pickled does not damage what was saved before."""
    layer = nn.Linear(3, 2)
    model = poptorch.inferenceModel(layer)
    model(X)
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.model.bad = lambda: None
    with pytest.raises(AttributeError):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# -- tile programs in files ------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch):
    """Counts how often a tile program is lowered."""
    made = []
    build = tile_program.build_tile_program

    def counting(*args):
        made.append(1)
        return build(*args)

    monkeypatch.setattr(tile_program, "build_tile_program", counting)
    return made


def cached(folder, layer=None):
    options = poptorch.Options().useIpuModel(True).enableExecutableCaching(folder)
    torch.manual_seed(0)
    return poptorch.inferenceModel(layer or nn.Linear(3, 2), options)


def test_saved_tile_programs_are_not_compiled_again(tmp_path, compilations):
    """A tile program travels in the file; one of another model is not used."""
    options = poptorch.Options().useIpuModel(True)
    layer = nn.Linear(3, 2)
    model = poptorch.inferenceModel(layer, options)
    expected = model(X)
    model.save(tmp_path / "m")
    assert torch.equal(poptorch.load(tmp_path / "m")(X), expected)
    again = poptorch.inferenceModel(layer, options)
    again.loadExecutable(tmp_path / "m")
    assert torch.equal(again(X), expected)
    assert len(compilations) == 1
    other = poptorch.inferenceModel(nn.Linear(3, 2, bias=False), options)
    other.loadExecutable(tmp_path / "m")
    other(X)
    assert len(compilations) == 2


def test_cache(tmp_path, compilations):
    """An equal model is found in the cache, whatever its weights; another one is not."""
    model = cached(tmp_path)
    expected = model(X)
    assert torch.equal(cached(tmp_path)(X), expected)
    other = nn.Linear(3, 2)
    torch.testing.assert_close(cached(tmp_path, other)(X), other(X).detach())
    assert len(compilations) == 1
    assert len(list(tmp_path.glob("*.tremula"))) == 1
    cached(tmp_path, nn.Linear(3, 2, bias=False))(X)
    assert len(compilations) == 2


def test_cache_of_the_environment(tmp_path, monkeypatch, compilations):
    """POPTORCH_CACHE_DIR switches the cache on."""
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "new"))
    for _ in range(2):
        poptorch.inferenceModel(nn.Linear(3, 2), poptorch.Options().useIpuModel(True))(X)
    assert len(compilations) == 1


def test_cache_on_this_computer(tmp_path, monkeypatch, compilations):
    """Where results are computed by the host, a compiled model leaves one record, found again."""
    monkeypatch.chdir(tmp_path)
    paths = [tmp_path / "set", tmp_path / "environment", tmp_path / "session_cache"]
    for path in paths:
        monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
        for layer in (nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2, bias=False)):
            if path.name == "environment":
                monkeypatch.setenv("POPTORCH_CACHE_DIR", str(path))
            options = poptorch.Options()
            if path.name == "set":
                options.enableExecutableCaching(path)
            elif path.name == "session_cache":  # PopART's default folder
                options._Popart.set("enableEngineCaching", True)
            model = poptorch.inferenceModel(layer, options)
            model.compile(X)
            torch.testing.assert_close(model(X), layer(X).detach())
        assert len(list(path.glob("*.host.tremula"))) == 2
    assert not compilations


def test_damaged_files_are_made_again(tmp_path, compilations, capfd):
    """A truncated file is as good as none, and replaced."""
    cached(tmp_path)(X)
    (path,) = tmp_path.glob("*.tremula")
    path.write_bytes(path.read_bytes()[:-100])
    cached(tmp_path)(X)
    assert "is truncated or was altered" in capfd.readouterr().err
    cached(tmp_path)(X)
    assert len(compilations) == 2


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, capfd):
    """If a program cannot be kept, a warning says so and the model runs."""

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tile_cache, "write_record", full)
    assert cached(tmp_path)(X).shape == (4, 2)
    assert "could not be kept" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_leftovers_of_killed_processes(tmp_path):
    """Old unfinished files are removed; new ones may belong to another process."""
    old, new = tmp_path / "a.part", tmp_path / "b.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    cached(tmp_path)(X)
    assert not old.exists()
    assert new.exists()


def test_constants_and_options_are_in_the_key(tmp_path, compilations):
    """Models that differ in a constant, or in the number of iterations, are two."""
    for value in (1.0, 2.0):
        layer = nn.Identity()
        layer.forward = lambda x, v=value: x + torch.tensor([v, 0.0, 0.0])
        assert cached(tmp_path, layer)(X)[0, 0] == 1 + value
    assert len(compilations) == 2


SCRIPT = """
import sys, torch, poptorch
torch.manual_seed(0)
options = poptorch.Options().useIpuModel(True).enableExecutableCaching(sys.argv[1])
model = poptorch.inferenceModel(torch.nn.Linear(3, 2), options)
print(model(torch.ones(4, 3)).tolist())
"""


@pytest.mark.slow
def test_processes_share_a_cache(tmp_path):
    """What one process compiled another one loads."""
    here = cached(tmp_path)(torch.ones(4, 3)).tolist()
    (path,) = tmp_path.glob("*.tremula")
    stamp = path.stat().st_mtime_ns
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    assert run_script(script, tmp_path, [str(tmp_path)]) == (0, f"{here}\n")
    assert [p.stat().st_mtime_ns for p in tmp_path.glob("*.tremula")] == [stamp]
