"""ONNX models as PyTorch modules, which PopTorch, the host and tiles run."""

# ruff: noqa: E402 - first of all, what to install

from tremula.base.requirements import require

require("tremula.onnx", "onnx")

from tremula.frontends.onnx.errors import OnnxError, UnsupportedOnnx
from tremula.frontends.onnx.graph import ValueInfo
from tremula.frontends.onnx.imported import ImportedModel, OnnxModule, import_model

__all__ = [
    "ImportedModel",
    "OnnxError",
    "OnnxModule",
    "UnsupportedOnnx",
    "ValueInfo",
    "import_model",
]
