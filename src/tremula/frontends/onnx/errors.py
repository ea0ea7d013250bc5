"""What can be wrong with an ONNX model."""

from tremula.base.errors import PoplarError


class OnnxError(PoplarError):
    """An ONNX model cannot be read, or does not say something that can be run."""


class UnsupportedOnnx(OnnxError):
    """A model uses an operator, a version of one, or a form of it that is not supported."""
