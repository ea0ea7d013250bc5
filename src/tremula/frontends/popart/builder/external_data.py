"""Weights in separate files next to the model."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import onnx
from onnx import TensorProto, external_data_helper, numpy_helper

from tremula.base.errors import suggest
from tremula.frontends.popart.exceptions import popart_exception


def move_initializers(graph: onnx.GraphProto, ids: list[str], path: Path) -> None:
    """Append the values of weights to a file; tensors of the graph then say where they are."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for id in ids:
        if id not in tensors:
            raise popart_exception(
                f"Unable to save tensor {id!r} externally: it is not an initializer of the model;"
                f" {suggest(id, tensors)}"
            )
        if tensors[id].data_location == TensorProto.EXTERNAL:
            raise popart_exception(f"Tensor {id!r} already has an external data_location.")
    if not path.absolute().parent.is_dir():
        raise popart_exception(
            f"Unable to save tensors to {str(path)!r}: its parent directory does not exist"
        )
    with _appending(path) as file:
        for id in ids:
            _move(tensors[id], file, path)


@contextmanager
def _appending(path: Path) -> Iterator[IO[bytes]]:
    """A file open at its end; an error, a full disk say, leaves it as it was."""
    n_bytes = path.stat().st_size if path.exists() else None
    try:
        with path.open("ab") as file:
            yield file
    except BaseException:
        if n_bytes is None:
            path.unlink(missing_ok=True)
        else:
            os.truncate(path, n_bytes)
        raise


def _move(tensor: TensorProto, file, path: Path) -> None:  # noqa: ANN001 - a binary file
    data = numpy_helper.to_array(tensor).tobytes()
    offset = file.tell()
    file.write(data)
    tensor.raw_data = data  # the helper asks for this field
    external_data_helper.set_external_data(
        tensor, location=str(path), offset=offset, length=len(data)
    )
    tensor.ClearField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)


def read_external(model: onnx.ModelProto, folder: Path | None) -> None:
    """Read the values of weights that are in other files; the model still says in which.

    Relative locations are looked for beside the model, then in the working directory.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = _entries(tensor)
        folders = [folder, Path()] if folder is not None else [Path()]
        paths = [place / entries["location"] for place in folders]
        path = next((p for p in paths if p.is_file()), None)
        if path is None:
            raise popart_exception(
                f"Data of the tensor {tensor.name!r} should be in {entries['location']}, but it"
                " doesn't exist or is not accessible"
            )
        with path.open("rb") as file:
            file.seek(int(entries.get("offset", 0)))
            tensor.raw_data = file.read(int(entries.get("length", -1)))
        tensor.data_location = TensorProto.DEFAULT


def write_external(tensors: list[TensorProto], states: list[TensorProto]) -> None:
    """Write values of weights back to the files they came from, states behind those of the first.

    Tensors that come from no file, and all states of a model without files, stay as they are.
    """
    outside = [tensor for tensor in tensors if tensor.external_data]
    if not outside:
        return
    first = _entries(outside[0])["location"]
    here = [_entries(t) for t in outside if _entries(t)["location"] == first]
    end = max(int(e.get("offset", 0)) + int(e.get("length", 0)) for e in here)
    for state in states:
        external_data_helper.set_external_data(
            state, location=first, offset=end, length=len(state.raw_data)
        )
        end += len(state.raw_data)
    for tensor in (*outside, *states):
        _write_back(tensor)


def _write_back(tensor: TensorProto) -> None:
    entries = _entries(tensor)
    with Path(entries["location"]).open("r+b") as file:
        file.seek(int(entries.get("offset", 0)))
        file.write(tensor.raw_data)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
