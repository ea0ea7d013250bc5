"""Reads ONNX models from bytes or files, or takes the model itself."""

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from tremula.frontends.popart.builder.external_data import read_external
from tremula.frontends.popart.exceptions import popart_exception


def read_model(source: "str | bytes | os.PathLike | onnx.ModelProto") -> onnx.ModelProto:
    """The model, with the weights that are stored in other files."""
    if isinstance(source, onnx.ModelProto):
        return source
    try:
        if isinstance(source, bytes):
            model, folder = onnx.load_model_from_string(source), None
        else:
            path = Path(source)
            if not path.is_file():
                raise popart_exception(f"Failed to load the model: there is no file {path}")
            model, folder = onnx.load(str(path), load_external_data=False), path.parent
    except DecodeError as error:
        what = "these bytes are" if isinstance(source, bytes) else f"{source} is"
        raise popart_exception(f"Failed to load the model: {what} not an ONNX model") from error
    read_external(model, folder)
    return model
