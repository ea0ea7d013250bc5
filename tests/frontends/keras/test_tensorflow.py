"""Scripts with TensorFlow's names run unchanged on request."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.scripts import run_command
from tremula.frontends.keras.tensorflow.dataset import Dataset
from tremula.keras import KerasError, as_tensorflow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tensorflow(monkeypatch):
    """The stand-in, taken away after the test."""
    for name in [n for n in sys.modules if n.split(".")[0] == "tensorflow"]:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    yield as_tensorflow(synthetic_samples=10)
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "tensorflow":
            del sys.modules[name]


@pytest.mark.slow
def test_the_script_of_the_slides_runs(tmp_path):
    """`tremula run --as-tensorflow` trains the slides' model, unmodified."""
    script = ROOT / "examples" / "keras" / "cifar10.py"
    command = ("run", "--as-tensorflow", "--synthetic-data", "64", script)
    code, printed = run_command(tmp_path, *command, KERAS_MAX_EPOCHS="1")
    assert code == 0, printed
    assert "accuracy" in printed


@pytest.mark.slow
def test_a_script_may_import_tensorflow_where_there_is_none(tmp_path):
    """`tremula run` alone gives a script the names; a library that tries gets none."""
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib.util, sys\n"
        "import numpy.testing\n"
        "import tensorflow as tf\n"
        "from tensorflow.python import ipu\n"
        "(x, y), _ = tf.keras.datasets.mnist.load_data()\n"
        "print(len(x), tf.reduce_sum(tf.constant([1, 2])).numpy(), ipu.config.IPUConfig())\n"
    )
    code, printed = run_command(tmp_path, "run", "--synthetic-data", "7", script)
    assert code == 0, printed
    assert "\n7 3" in f"\n{printed}"
    assert "tensorflow is not installed" in printed


def test_names_of_tensorflow_are_those_of_keras(tensorflow):
    """Modules can be imported by TensorFlow's names; a name that is missing suggests another."""
    import tensorflow.keras.layers as layers
    from tensorflow.python import ipu

    assert tensorflow.keras.layers is layers
    assert ipu.config.IPUConfig().auto_select_ipus == []
    (x, y), _ = tensorflow.keras.datasets.cifar10.load_data()
    assert x.shape == (10, 32, 32, 3)
    assert y.shape == (10, 1)
    with pytest.raises(AttributeError, match=r"tensorflow has no 'reduce_men'[\s\S]*reduce_mean"):
        _ = tensorflow.reduce_men


def test_a_loaded_tensorflow_stays(monkeypatch):
    """The names are an error where the real modules are in use."""
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    with pytest.raises(KerasError, match="TensorFlow itself is loaded"):
        as_tensorflow()


def test_data_sets_are_cut_and_mapped():
    """Batches, functions, order and repetition, as of tf.data."""
    rows = Dataset.from_tensor_slices((np.arange(7), np.arange(7) * 10))
    batches = [[part.tolist() for part in batch] for batch in rows.batch(3, drop_remainder=True)]
    assert batches == [[[0, 1, 2], [0, 10, 20]], [[3, 4, 5], [30, 40, 50]]]
    assert len(rows.batch(3)) == 3
    mapped = rows.batch(3).map(lambda a, b: (a + 1, b)).take(1)
    assert [batch[0].tolist() for batch in mapped] == [[1, 2, 3]]
    assert sorted(int(a) for a, _ in rows.shuffle(7, seed=0)) == list(range(7))
    endless = iter(rows.repeat().batch(4))
    assert [next(endless)[0].tolist() for _ in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 0],
        [1, 2, 3, 4],
    ]
    with pytest.raises(KerasError, match="equally many rows"):
        Dataset.from_tensor_slices((np.arange(3), np.arange(4)))
