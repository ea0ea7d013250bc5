"""`tremula run --port`: scripts of older libraries run, and nothing stays afterwards."""

import dataclasses
import importlib
import random
import sys

import numpy as np
import pytest

from tremula.commands import main
from tremula.commands.port.shims import ModuleShim, NameShim, ported
from tremula.commands.port.table import SHIMS, markdown

SCRIPT = """
import collections, inspect, random, time
from dataclasses import dataclass, field
import numpy as np

@dataclass
class Layer:
    size: np.int = 3

@dataclass
class Config:
    layer: Layer = Layer()
    names: list = field(default_factory=list)

assert Config().layer is Config().layer is Config.layer and Config().layer.size == 3
assert Config(Layer(4)).layer.size == 4
try:
    @dataclass
    class Wrong:
        names: list = []
except ValueError:
    pass
else:
    raise SystemExit("lists were never allowed")
data = np.fromstring(b"\\x01\\x02", dtype=np.uint8)
data += 1
assert data.tolist() == [2, 3] and np.fromstring("1 2", sep=" ").tolist() == [1, 2]
assert np.zeros(2, np.float).dtype == np.float_ and np.product([2, 3]) == 6
assert np.in1d([[1, 2]], [2]).tolist() == [False, True]
assert isinstance({}, collections.Mapping) and time.clock() > 0
assert inspect.getargspec(lambda a, b=1: 0).args == ["a", "b"]
assert random.sample({1, 2}, 2)
"""


def _run(tmp_path, text, *options):
    path = tmp_path / "script.py"
    path.write_text(text)
    return main(["run", *options, str(path)])


def test_scripts_of_older_python_and_numpy(tmp_path, capsys):
    """They fail without --port, run with it, and leave no name behind."""
    plain = dataclasses.dataclass, random.sample, np.fromstring
    assert _run(tmp_path, SCRIPT) == 1
    capsys.readouterr()
    assert _run(tmp_path, SCRIPT, "--port") == 0, capsys.readouterr().err
    assert (dataclasses.dataclass, random.sample, np.fromstring) == plain
    assert "int" not in vars(np)


OTHERS = """
import yaml
assert yaml.load("a: [1, 2]") == {"a": [1, 2]} and yaml.load("b: 1", Loader=yaml.SafeLoader)
from scipy.integrate import simps
assert simps([1, 1, 1]) == 2
"""

TORCH = """
import io, sys, torch
from torch._six import container_abcs, inf, string_classes
assert issubclass(list, container_abcs.Sequence) and inf > 1 and string_classes is str
class Thing: pass
sys.modules["__main__"].Thing = Thing
file = io.BytesIO()
torch.save({"a": Thing()}, file)
file.seek(0)
assert isinstance(torch.load(file)["a"], Thing)
matrix = torch.tensor([[2.0, 1], [1, 2]])
values, vectors = torch.symeig(matrix, eigenvectors=True)
assert torch.allclose(vectors @ torch.diag(values) @ vectors.T, matrix)
assert torch.allclose(matrix @ torch.solve(torch.ones(2, 1), matrix)[0], torch.ones(2, 1))
"""

JAX = """
import jax
from jax.config import config
config.update("jax_enable_x64", False)
jax.config.update("jax_enable_x64", False)
import jax.numpy as jnp
from jax.core import Primitive, ShapedArray
from jax.experimental import stax
from jax_ipu_experimental_addons.tile import tile_put_sharded
assert Primitive("mine").name == "mine" and jax.ShapedArray is ShapedArray
assert tile_put_sharded(jnp.ones(2), (0, 5)).tiles == (0, 5)
x = jax.ops.index_update(jnp.zeros(3), jax.ops.index[1:], 2.0)
assert jax.tree_map(lambda v: v + 1, {"a": x})["a"].tolist() == [1, 3, 3]
assert isinstance(x, jnp.DeviceArray) and stax.serial
"""

TRANSFORMERS = """
from transformers.configuration_bert import BertConfig
from transformers.modeling_utils import apply_chunking_to_forward
from transformers import AdamW, AutoModelWithLMHead
assert AutoModelWithLMHead
assert BertConfig(hidden_size=12).hidden_size == 12 and AdamW
"""


@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("scipy", OTHERS),
        ("torch", TORCH),
        ("jax", JAX),
        pytest.param("transformers", TRANSFORMERS, marks=pytest.mark.slow),
    ],
)
def test_scripts_of_older_libraries(library, text, tmp_path, capsys):
    """Names and modules that a library dropped work, also imported after the script began."""
    module = pytest.importorskip(library)
    names = set(vars(module))
    assert _run(tmp_path, text, "--port") == 0, capsys.readouterr().err
    assert not [s.module for s in SHIMS if isinstance(s, ModuleShim) and s.module in sys.modules]
    if library == "jax":
        assert not hasattr(module, "tree_map")
        assert module.config is importlib.import_module("jax._src.config").config
        assert not [name for name in set(vars(module)) - names if name.startswith("tree_")]


def test_changes_of_modules_that_come_later(tmp_path, monkeypatch):
    """A module gets its names when it is imported; one that has a name keeps it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "later_library.py").write_text("present = 1\n")
    rows = (
        NameShim("later_library", ("present", "absent"), lambda _module, _name: 2, "a test"),
        ModuleShim("later_library_old", "a test", ("one=later_library.present",)),
        ModuleShim("later_library_old.part", "a test", package="later_library"),
    )
    with ported(rows):
        later = importlib.import_module("later_library")
        assert (later.present, later.absent) == (1, 2)
        assert importlib.import_module("later_library_old").one == 1
        assert importlib.import_module("later_library_old.part").present == 1
    assert not hasattr(later, "absent")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("later_library_old")


def test_the_page_lists_every_shim(repository):
    """docs/porting-shims.md is current and has a reason for each name."""
    page = (repository / "docs" / "porting-shims.md").read_text()
    assert page == markdown()
    assert all(shim.shown in page and shim.reason in page for shim in SHIMS)
