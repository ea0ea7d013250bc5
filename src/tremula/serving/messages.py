"""Messages of the V2 inference protocol: requests read and checked, answers written.

A body is JSON; with the binary extension, JSON of `Inference-Header-Content-Length` bytes and then
the tensors' bytes in order.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np

from tremula.base.errors import suggest
from tremula.base.storage import strict_json
from tremula.base.storage.strict_json import JsonObject
from tremula.serving.errors import RequestError, bad_request
from tremula.serving.program import ServedProgram
from tremula.serving.tensors import ServedTensor, to_json

JSON_LENGTH = "inference-header-content-length"


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that a request asks for."""

    index: int  # among the program's outputs
    is_binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    id: str | None
    inputs: list[np.ndarray]
    outputs: tuple[WantedOutput, ...]


# -- requests --------------------------------------------------------------------------------------


def read_request(body: bytes, json_length: str | None, program: ServedProgram) -> InferRequest:
    """A request whose names, types and shapes are the program's."""
    head, tail = _split(body, json_length)
    message = _object(_parsed(head), "the request")
    tensors = _named(message.get("inputs"), "inputs", program.inputs)
    if len(tensors) != len(program.inputs):
        missing = [repr(s.name) for s in program.inputs if s.name not in tensors]
        raise bad_request(f"the request lacks input {', '.join(missing)}")
    arrays = _arrays(tensors, tail, program.inputs)
    if len({len(array) for array in arrays}) != 1:
        counts = ", ".join(f"{n!r} {len(a)}" for n, a in zip(tensors, arrays, strict=True))
        raise bad_request(f"the inputs differ in their number of rows: {counts}")
    identity = message.get("id")
    if identity is not None and not isinstance(identity, str):
        raise bad_request(f"`id` must be a text, got {identity!r}")
    return InferRequest(identity, arrays, _wanted(message, program))


def _split(body: bytes, json_length: str | None) -> tuple[memoryview, memoryview]:
    whole = memoryview(body)
    if json_length is None:
        return whole, whole[:0]
    is_number = json_length.isascii() and json_length.isdigit() and len(json_length) < 12
    if not is_number or int(json_length) > len(body):
        raise bad_request(
            f"Inference-Header-Content-Length is {json_length!r}, but the body has {len(body)} "
            "bytes"
        )
    n = int(json_length)
    return whole[:n], whole[n:]


def _parsed(text: memoryview) -> object:
    try:
        return strict_json.loads(bytes(text))
    except ValueError as error:
        raise bad_request(f"the request is not JSON: {error}") from None


def _object(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be an object of JSON, got {type(value).__name__}")
    return value


def _named(tensors: object, field: str, specs: Sequence[ServedTensor]) -> dict[str, JsonObject]:
    """Descriptions of tensors by name, each one the program has, none twice."""
    if not isinstance(tensors, list) or not tensors:
        raise bad_request(f"the request needs `{field}`, a list of tensors")
    known = [spec.name for spec in specs]
    result: dict[str, JsonObject] = {}
    for value in tensors:
        tensor = _object(value, f"each of `{field}`")
        name = tensor.get("name")
        if not isinstance(name, str) or name not in known:
            raise bad_request(f"there is no {field[:-1]} {name!r}; {suggest(str(name), known)}")
        if name in result:
            raise bad_request(f"{field[:-1]} {name!r} is given twice")
        result[name] = tensor
    return result


def _arrays(
    tensors: dict[str, JsonObject], tail: memoryview, specs: Sequence[ServedTensor]
) -> list[np.ndarray]:
    """Bytes follow each other in the order of the request, arrays come in the program's."""
    by_name = {spec.name: spec for spec in specs}
    result = {}
    at = 0
    for name, tensor in tensors.items():
        spec = by_name[name]
        n_rows = spec.check(tensor.get("datatype"), tensor.get("shape"))
        size = _parameters(tensor).get("binary_data_size")
        if size is None:
            result[name] = spec.from_json(tensor.get("data"), n_rows)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - at or "data" in tensor:
            raise bad_request(
                f"input {name!r}: binary_data_size {size!r} does not fit the {len(tail) - at} "
                "bytes left after the JSON, or `data` is given, too"
            )
        result[name] = spec.from_bytes(tail[at : at + size], n_rows)
        at += size
    if at != len(tail):
        raise bad_request(f"{len(tail) - at} bytes after the JSON belong to no input")
    return [result[spec.name] for spec in specs]


def _parameters(message: JsonObject) -> JsonObject:
    return _object(message.get("parameters", {}), "`parameters`")


def _wanted(message: JsonObject, program: ServedProgram) -> tuple[WantedOutput, ...]:
    default = _parameters(message).get("binary_data_output", False)
    index_of_output = {spec.name: i for i, spec in enumerate(program.outputs)}
    if "outputs" not in message:
        return tuple(WantedOutput(i, _flag(default)) for i in index_of_output.values())
    chosen = _named(message["outputs"], "outputs", program.outputs)
    return tuple(
        WantedOutput(index_of_output[name], _flag(_parameters(tensor).get("binary_data", default)))
        for name, tensor in chosen.items()
    )


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise bad_request(f"binary_data must be true or false, got {value!r}")
    return value


# -- answers ---------------------------------------------------------------------------------------


def infer_answer(
    program: ServedProgram, request: InferRequest, outputs: Sequence[np.ndarray]
) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON if bytes follow it."""
    described, tail = [], []
    for wanted in request.outputs:
        spec, array = program.outputs[wanted.index], outputs[wanted.index]
        tensor: JsonObject = {
            "name": spec.name, "datatype": spec.datatype, "shape": list(array.shape),
        }  # fmt: skip
        if wanted.is_binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            tail.append(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        else:
            tensor["data"] = to_json(array)
        described.append(tensor)
    message: JsonObject = {"model_name": program.name, "outputs": described}
    if request.id is not None:
        message["id"] = request.id
    try:
        head = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise RequestError(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "an output is infinite or not a number, which JSON cannot say: ask for binary_data",
        ) from None
    return (b"".join((head, *tail)), len(head)) if tail else (head, None)


def model_metadata(program: ServedProgram) -> JsonObject:
    return {
        "name": program.name,
        "versions": ["1"],
        "platform": program.platform,
        "inputs": [spec.metadata() for spec in program.inputs],
        "outputs": [spec.metadata() for spec in program.outputs],
    }
