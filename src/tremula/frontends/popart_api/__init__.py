"""The PopART API: ONNX graphs built, run, trained and costed; `popart` names its parts."""

try:
    import onnx  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "PopART builds and reads ONNX models, and the package onnx is not installed:"
        " pip install tremula[onnx]"
    ) from error
