"""A client of the V2 protocol: arrays in, arrays out, one request after another."""

import http.client
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from tremula.base.errors import InvalidOption, RuntimeFailure
from tremula.serving.tensors import DATATYPES

JSON_LENGTH = "Inference-Header-Content-Length"
_TYPES = {name: dtype for dtype, name in DATATYPES.items()}


def infer_body(
    inputs: Mapping[str, np.ndarray], *, is_binary: bool = True
) -> tuple[bytes, dict[str, str]]:
    """The body and headers of an inference request; all outputs are requested in the same form."""
    described, tail = [], []
    for name, array in inputs.items():
        tensor: dict[str, object] = {
            "name": name, "datatype": DATATYPES[array.dtype], "shape": list(array.shape),
        }  # fmt: skip
        if is_binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            tail.append(array.tobytes())
        else:
            tensor["data"] = array.reshape(-1).tolist()
        described.append(tensor)
    message = {"inputs": described, "parameters": {"binary_data_output": is_binary}}
    head = json.dumps(message).encode()
    headers = {JSON_LENGTH: str(len(head))} if is_binary else {}
    return b"".join((head, *tail)), headers


class InferenceClient:
    """One connection: `InferenceClient("http://127.0.0.1:8000").infer("model", {"x": rows})`."""

    def __init__(self, url: str, timeout_s: float = 60.0):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidOption(
                f"{url!r} is not the address of a server.", hint="http://127.0.0.1:8000"
            )
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port or 80, timeout=timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def metadata(self, model: str) -> dict[str, Any]:
        """What the server says about a model."""
        return json.loads(self._ask("GET", f"/v2/models/{model}", b"", {})[0])

    def infer(self, model: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name; a rejected request raises its reason."""
        body, headers = infer_body(inputs)
        answer, json_length = self._ask("POST", f"/v2/models/{model}/infer", body, headers)
        message, at, result = json.loads(answer[:json_length]), json_length, {}
        for tensor in message["outputs"]:
            n_bytes = tensor["parameters"]["binary_data_size"]
            data = np.frombuffer(answer[at : at + n_bytes], _TYPES[tensor["datatype"]])
            result[tensor["name"]] = data.reshape(tensor["shape"])
            at += n_bytes
        return result

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[bytes, int]:
        """The body of an answer, and how much of it is JSON."""
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeFailure(
                f"the server answered {answer.status}: {content.decode(errors='replace')[:500]}"
            )
        return content, int(answer.headers.get(JSON_LENGTH) or len(content))
