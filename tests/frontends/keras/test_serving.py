"""Models in files predict what they predicted, without Keras, here and on tiles."""

import numpy as np
import pytest

import tremula
from tests.scripts import run_code
from tremula.base.errors import FileLoadError
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers  # isort: skip

ROWS = np.random.default_rng(9).random((3, 4), dtype=np.float32)
SCRIPT = """
import sys
import numpy as np
import tremula
served = tremula.load_served(sys.argv[1])
print(served(np.load(sys.argv[2])).tolist())
assert "keras" not in sys.modules
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with functions around it, its file, and what it predicts."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(2)
        model = keras.Sequential(
            [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Softmax()]
        )
        folder = tmp_path_factory.mktemp("served")
        model.export_for_ipu_serving(
            folder,
            batch_size=3,
            preprocessing_step=lambda x: x * 2 - 1,
            postprocessing_step=lambda y: (keras.ops.argmax(y, -1), y),
        )
        result = model.predict(ROWS * 2 - 1, batch_size=3, verbose=0)
    reset_ipu_configuration()
    return model, folder, result


@pytest.mark.slow
def test_a_file_predicts_as_the_model_does(exported):
    """On this computer and vertex by vertex, with what comes before and after."""
    _, folder, expected = exported
    served = tremula.load_served(folder)
    for best, result in (served(ROWS), served.run_on_tiles(ROWS)):
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        np.testing.assert_array_equal(best, expected.argmax(-1))
    assert served.report().total_cycles > 0
    assert served.about.batch_size == 3


@pytest.mark.slow
def test_no_keras_is_loaded(exported, tmp_path):
    """Another process reads the file and never imports Keras."""
    model, _, _ = exported
    path = model.export_for_ipu_serving(tmp_path, batch_size=3, tiles=False)
    np.save(tmp_path / "rows.npy", ROWS)
    code, printed = run_code(SCRIPT, tmp_path, str(path), str(tmp_path / "rows.npy"))
    assert code == 0, printed
    expected = model.predict(ROWS, batch_size=3, verbose=0)
    np.testing.assert_allclose(eval(printed), expected, rtol=1e-5)
    with pytest.raises(KerasError, match="no program for tiles"):
        tremula.load_served(path).report()


def test_what_cannot_be_served_is_refused(exported, tmp_path):
    """A batch of another size, a file of another kind, a model without a batch size."""
    model, folder, _ = exported
    with pytest.raises(KerasError, match=r"shape \(3, 4\); got \(2, 4\)[\s\S]*test_serving"):
        tremula.load_served(folder)(ROWS[:2])
    (tmp_path / "other.served").write_bytes(b"PK nothing")
    with pytest.raises(FileLoadError, match="is not a model for serving"):
        tremula.load_served(tmp_path / "other.served")
    with pytest.raises(KerasError, match="needs a batch size"):
        model.export_for_ipu_serving(tmp_path)
    plain = keras.Sequential([keras.Input((2,))])
    scope = ipu.ipu_strategy.IPUStrategy().scope()
    with scope, pytest.raises(KerasError, match="outside IPUStrategy"):
        plain.export_for_ipu_serving(tmp_path, 1)
