"""Answers to requests: which path is which part of the V2 protocol, and the response."""

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus

import numpy as np

from tremula.base.errors import suggest
from tremula.base.version import VERSION
from tremula.serving.batching import Batcher, Ticket
from tremula.serving.errors import RequestError
from tremula.serving.messages import (
    JSON_LENGTH,
    InferRequest,
    infer_answer,
    model_metadata,
    read_request,
)  # fmt: skip
from tremula.serving.metrics import CONTENT_TYPE, Metrics
from tremula.serving.program import ServedProgram

# Requests above this size are read on another thread: the loop answers others meanwhile.
_LARGE_BYTES = 256 << 10
_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer))?")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A whole request of HTTP."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case; those the protocol needs
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()


Reply = Callable[[Answer], None]


def error_answer(error: RequestError) -> Answer:
    """An error in the form of the protocol."""
    later = (("Retry-After", "1"),) if error.status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    return _json({"error": error.reason}, error.status, later)


def _json(
    message: object, status: HTTPStatus = HTTPStatus.OK, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    return Answer(status, json.dumps(message).encode(), _JSON, headers)


@dataclass(slots=True)
class Service:
    """One program and its queue. All methods run on the loop's thread."""

    program: ServedProgram
    batcher: Batcher
    metrics: Metrics
    is_ready: bool = True
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def reject_early(self, method: str, path: str) -> Answer | None:
        """What can be rejected before the body is read: that costs nearly nothing."""
        if method == "POST" and path.endswith("/infer"):
            try:
                self.batcher.raise_if_full()
            except RequestError as error:
                return error_answer(error)
        return None

    def handle(self, request: InferenceRequest, reply: Reply) -> "Ticket | None":
        """Answer, at once or later; a ticket if the request waits for a batch."""
        try:
            match = _MODEL.fullmatch(request.path)
            if match is None:
                reply(self._of_server(request))
                return None
            self._check_model(match[1], match[2])
            if match[3] != "infer":
                reply(self._of_model(request, match[3]))
                return None
            _need_method(request, "POST")
            return self._infer(request, reply)
        except RequestError as error:
            reply(error_answer(error))
            return None

    def close(self) -> None:
        self.batcher.close()
        self._reader.shutdown(wait=False)

    def _of_server(self, request: InferenceRequest) -> Answer:
        answers: dict[str, Callable[[], Answer]] = {
            "/v2": lambda: _json(
                {"name": "tremula", "version": VERSION, "extensions": ["binary_tensor_data"]}
            ),
            "/v2/health/live": lambda: _json({"live": True}),
            "/v2/health/ready": self._ready,
            "/metrics": self._metrics,
        }
        make = answers.get(request.path.rstrip("/"))
        if make is None:
            raise RequestError(
                HTTPStatus.NOT_FOUND,
                f"there is nothing at {request.path[:200]!r}; this server speaks the V2 inference "
                f"protocol: POST /v2/models/{self.program.name}/infer",
            )
        _need_method(request, "GET")
        return make()

    def _ready(self) -> Answer:
        status = HTTPStatus.OK if self.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _json({"ready": self.is_ready}, status)

    def _metrics(self) -> Answer:
        text = self.metrics.text(self.batcher.n_waiting_rows, is_ready=self.is_ready)
        return Answer(HTTPStatus.OK, text.encode(), CONTENT_TYPE)

    def _check_model(self, name: str, version: str | None) -> None:
        if name != self.program.name:
            advice = suggest(name, [self.program.name])
            raise RequestError(HTTPStatus.NOT_FOUND, f"there is no model {name[:200]!r}; {advice}")
        if version not in {None, "1"}:
            raise RequestError(HTTPStatus.NOT_FOUND, f"model {name!r} has version '1' only")

    def _of_model(self, request: InferenceRequest, what: str | None) -> Answer:
        _need_method(request, "GET")
        return self._ready() if what == "ready" else _json(model_metadata(self.program))

    # -- inference ---------------------------------------------------------------------------------

    def _infer(self, request: InferenceRequest, reply: Reply) -> "Ticket | None":
        began = time.perf_counter()
        length = request.headers.get(JSON_LENGTH)
        if len(request.body) <= _LARGE_BYTES:
            infer_request = read_request(request.body, length, self.program)
            return self._submit(infer_request, reply, began)
        loop = self.batcher.loop
        reading: Future[InferRequest] = self._reader.submit(
            read_request, request.body, length, self.program
        )

        def then(future: "Future[InferRequest]") -> None:
            loop.call_soon_threadsafe(self._after_reading, future, reply, began)

        reading.add_done_callback(then)
        return None

    def _after_reading(self, read: "Future[InferRequest]", reply: Reply, began: float) -> None:
        try:
            self._submit(read.result(), reply, began)
        except RequestError as error:
            reply(error_answer(error))

    def _submit(self, infer_request: InferRequest, reply: Reply, began: float) -> Ticket:
        def done(outputs: list[np.ndarray] | Exception) -> None:
            self.metrics.latency.add(time.perf_counter() - began)
            reply(self._answer(infer_request, outputs))

        return self.batcher.submit(infer_request.inputs, done)

    def _answer(self, infer_request: InferRequest, outputs: list[np.ndarray] | Exception) -> Answer:
        if isinstance(outputs, Exception):
            reason = f"{self.program.name} failed: {outputs}"
            return error_answer(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, reason))
        try:
            body, json_length = infer_answer(self.program, infer_request, outputs)
        except RequestError as error:
            return error_answer(error)
        if json_length is None:
            return Answer(HTTPStatus.OK, body)
        length = (("Inference-Header-Content-Length", str(json_length)),)
        return Answer(HTTPStatus.OK, body, "application/octet-stream", length)


def _need_method(request: InferenceRequest, method: str) -> None:
    if request.method != method:
        raise RequestError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} takes {method}, not {request.method}"
        )
