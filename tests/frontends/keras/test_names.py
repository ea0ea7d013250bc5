"""The names that public programs use resolve; an error names what is not there."""

import importlib
from pathlib import Path

import pytest

from tremula.frontends.keras.tensorflow.names import ROOT, TensorFlowModule, names_markdown
from tremula.frontends.keras.tensorflow.table import ALIASES, MODULES
from tremula.keras import as_tensorflow

USED = Path(__file__).parent / "data" / "used_names.txt"
LEAST = 2  # files that use a name


@pytest.fixture(autouse=True)
def tensorflow():
    """TensorFlow's names, from here."""
    return as_tensorflow()


def used_names():
    """Modules and names of the list, with the number of files that use them."""
    for line in USED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, count = line.rsplit(" ", 1)
            yield name, int(count)


def resolved(name):
    if name.startswith("import "):
        return importlib.import_module(name.removeprefix("import "))
    module, *rest = name.split(".")
    for other in ("horovod.torch", "horovod.tensorflow", "popdist.poptorch", "popdist.tensorflow"):
        importlib.import_module(other)
    for part in ("keras.layers", "keras.optimizers"):
        importlib.import_module(f"ipu_tensorflow_addons.{part}")
    value = importlib.import_module(module)
    for part in rest:
        value = getattr(value, part)
    return value


def test_names_that_programs_use_resolve():
    """All of them that two files use, or they are TensorFlow 1's, and the error says it."""
    missing, n_resolved = [], 0
    for name, count in used_names():
        try:
            resolved(name)
            n_resolved += 1
        except AttributeError as error:
            is_rejected = name.startswith(ROOT) and "is TensorFlow 1" in str(error)
            if count >= LEAST and not is_rejected:
                missing.append(name)
    assert not missing
    assert n_resolved > 350


def test_every_row_of_the_table_resolves():
    """Modules import under every name, and each name that a row lists is there."""
    for path in (*MODULES, *ALIASES):
        if path != "tensorflow.__internal__":
            assert isinstance(importlib.import_module(path), TensorFlowModule), path
        for row in MODULES.get(path, ()):
            for word in row.partition(": ")[2].split():
                own = word.partition("=")[0]
                assert own == "*" or hasattr(importlib.import_module(path), own), (path, own)


def test_what_is_missing_is_named_with_its_page(tensorflow):
    """One line for a wrong name, a module, a rejected one, however it is imported."""
    with pytest.raises(AttributeError, match=r"tensorflow\.math has no 'unsorted_sum'.*porting"):
        _ = tensorflow.math.unsorted_sum
    with pytest.raises(ImportError, match=r"tensorflow\.nn has no 'rellu'.*relu"):
        from tensorflow.nn import rellu  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow has no 'wontexist'.*porting"):
        import tensorflow.wontexist
    with pytest.raises(AttributeError, match=r"compat\.v1\.Session is TensorFlow 1.*porting"):
        _ = tensorflow.compat.v1.Session
    with pytest.raises(ImportError, match=r"loops\.repeat is TensorFlow 1"):
        from tensorflow.python.ipu.loops import repeat  # noqa: F401
    with pytest.raises(ImportError, match=r"training\.optimizer is TensorFlow 1"):
        from tensorflow.python.training.optimizer import Optimizer  # noqa: F401
    assert not hasattr(tensorflow, "contrib")


def test_star_imports():
    """`from tensorflow.keras.layers import *` gives the public names, and nothing of ours."""
    names: dict[str, object] = {}
    exec("from tensorflow.keras.layers import *\nfrom tensorflow.nn import *", names)
    assert {"Conv2D", "Dense", "relu", "softmax"} <= set(names)
    assert not {"ops", "plain", "Value", "keras_error"} & set(names)


def test_the_page_is_the_table():
    """docs/tensorflow-names.md is what the table says; `make docs` writes it."""
    page = Path(__file__).parents[3] / "docs" / "tensorflow-names.md"
    assert page.read_text(encoding="utf-8") == names_markdown()
