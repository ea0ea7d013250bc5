"""`import tremula.onnx`: ONNX models that run, train and are costed, here and on tiles."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.frontends.onnx import (
    ImportedModel,
    OnnxError,
    OnnxModule,
    UnsupportedOnnx,
    import_model,
)
from tremula.frontends.onnx.backend import CompiledBackend, OnnxBackend, TileBackend
from tremula.frontends.onnx.compiled import compile_model

__all__ = [
    "CompiledBackend",
    "ImportedModel",
    "OnnxBackend",
    "OnnxError",
    "OnnxModule",
    "TileBackend",
    "UnsupportedOnnx",
    "compile_model",
    "import_model",
]

_explain_arguments_of(globals(), __all__)
