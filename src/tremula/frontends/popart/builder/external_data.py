"""Weights in separate files next to the model."""

from pathlib import Path

import onnx
from onnx import TensorProto, external_data_helper, numpy_helper

from tremula.base.errors import suggest
from tremula.frontends.popart.exceptions import popart_exception

_ALIGNMENT = 4096  # readers may map the file page by page


def move_initializers(graph: onnx.GraphProto, ids: list[str], path: Path) -> None:
    """Append the values of weights to a file; tensors of the graph then say where they are."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for id in ids:
        if id not in held:
            raise popart_exception(
                f"Unable to save tensor {id!r} externally: it is not an initializer of the model;"
                f" {suggest(id, held)}"
            )
        if held[id].data_location == TensorProto.EXTERNAL:
            raise popart_exception(f"Tensor {id!r} already has an external data_location.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for id in ids:
            _move(held[id], file, path)


def _move(tensor: TensorProto, file, path: Path) -> None:  # noqa: ANN001 - a binary file
    data = numpy_helper.to_array(tensor).tobytes()
    offset = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.write(b"\0" * (offset - file.tell()))
    file.write(data)
    tensor.raw_data = data  # the helper asks for this field
    external_data_helper.set_external_data(
        tensor, location=str(path), offset=offset, length=len(data)
    )
    tensor.ClearField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
