"""`import tensorflow` in a script that `tremula run` runs, where TensorFlow is not installed."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_ROOT = "tensorflow"
_LIBRARIES = ("site-packages", "dist-packages", "<frozen ")
_NOTE = "tensorflow is not installed: the script gets Tremula's names of it (docs/keras-porting.md)"


class OfferedTensorflow(importlib.abc.MetaPathFinder):
    """Asked last: Tremula's names, for a script; libraries that try to import it find nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _ROOT or not _is_imported_by_script():
            return None
        from tremula.frontends.keras.tensorflow.names import Finder, install  # loads Keras

        print(_NOTE, file=sys.stderr)
        install()
        return Finder().find_spec(fullname, path, target)


def offer_tensorflow() -> None:
    """Let scripts import `tensorflow` where nothing else provides it."""
    if not any(isinstance(finder, OfferedTensorflow) for finder in sys.meta_path):
        sys.meta_path.append(OfferedTensorflow())


def withdraw_tensorflow() -> None:
    """Offer it no longer."""
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, OfferedTensorflow)]


def _is_imported_by_script() -> bool:
    """Whether the innermost code that imports belongs to no library."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        return False
    file = frame.f_code.co_filename
    is_own = frame.f_globals.get("__name__", "").split(".")[0] in ("tremula", "keras", "torch")
    return not is_own and not any(part in file for part in _LIBRARIES)
