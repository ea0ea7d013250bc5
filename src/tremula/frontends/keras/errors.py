"""The errors of Keras models on the machine, at lines of the user's script."""

import os
import sys

from tremula.base.errors import PoplarError
from tremula.base.source import Source, is_framework_code, source_at


class KerasError(PoplarError):
    """A Keras model, or its settings, that Tremula cannot run, and why."""


def script_line() -> Source:
    """The line of the nearest caller outside Tremula, Keras, PyTorch and Python."""
    keras = sys.modules.get("keras")
    folder = os.path.dirname(str(keras.__file__)) + os.sep if keras is not None else "\0"
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not (is_framework_code(file) or file.startswith(folder)):
            break
        frame = frame.f_back
    return source_at(frame.f_code.co_filename, frame.f_lineno)


def keras_error(what: str, hint: str = "") -> KerasError:
    """The error to raise: it names the user's line."""
    return KerasError(what, source=script_line(), hint=hint)
