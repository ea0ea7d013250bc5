"""A served program whose answers are known, a server of it, and clients that do as they like."""

import http.client
import json
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("httptools", reason="pip install 'tremula[serve]'")

from tremula.serving.program import program_from_call
from tremula.serving.server import ServeSettings, serving

N_BATCH = 4


def make_program(run=None, n_batch=N_BATCH):
    """`sum` of a row of four floats, and the row `twice` as floats of 16 bits; `tag` comes back."""

    def own(batch):
        x, tag = batch
        return [x.sum(1), (2 * x).astype(np.float16), tag]

    example = [np.zeros((n_batch, 4), np.float32), np.zeros((n_batch,), np.int32)]
    names = {"input_names": ["x", "tag"], "output_names": ["sum", "twice", "tag_out"]}
    program = program_from_call(own, example, name="rows", platform="test", **names)
    if run is None:
        return program
    return replace(program, run=lambda batch: run(batch, own))


def message(n_rows=1, first=0.0, **changes):
    """A request of `n_rows` rows 0 1 2 3, 1 2 3 4, …"""
    rows = [[first + r + c for c in range(4)] for r in range(n_rows)]
    return {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [n_rows, 4], "data": rows},
            {"name": "tag", "datatype": "INT32", "shape": [n_rows], "data": list(range(n_rows))},
        ],
        **changes,
    }


class Client:
    """Asks a server, one request after another."""

    def __init__(self, port):
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        data = json.dumps(body).encode() if isinstance(body, dict | list) else body
        self.connection.request(method, path, data, headers or {})
        answer = self.connection.getresponse()
        content = answer.read()
        is_json = answer.headers["Content-Type"] == "application/json"
        parsed = json.loads(content) if is_json else content
        return SimpleNamespace(status=answer.status, body=parsed, headers=answer.headers)

    def infer(self, body, headers=None):
        return self.ask("POST", "/v2/models/rows/infer", body, headers)

    def close(self):
        self.connection.close()


class Gate:
    """A program that waits at a gate before each batch, and notes how full batches were."""

    def __init__(self):
        self.opened = threading.Event()
        self.opened.set()
        self.n_arrived = self.n_runs = 0

    def __call__(self, batch, own):
        self.n_arrived += 1
        assert self.opened.wait(60)
        self.n_runs += 1
        return own(batch)


def raw(port, data, *, seconds=60):
    """What a server answers to these bytes, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        result = b""
        while chunk := connection.recv(65536):
            result += chunk
        return result


def until(condition, seconds=120):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def serve():
    """Starts a server: `serve(program, **settings)` gives a client's maker and a port."""
    with ExitStack() as stack:

        def start(program=None, **settings):
            own = ServeSettings(**settings)
            port = stack.enter_context(serving(program or make_program(), own))
            client = Client(port)
            stack.callback(client.close)
            return client

        yield start


@pytest.fixture
def client(serve):
    return serve()
