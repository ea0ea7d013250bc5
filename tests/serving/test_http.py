"""Clients that are slow, greedy or talk nonsense do not hurt others; stopping loses nothing."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.conftest import Client, Gate, make_program, message, raw, until
from tremula.serving.http import Limits
from tremula.serving.load import load_test
from tremula.serving.server import ServeSettings, serving

BODY = json.dumps(message()).encode()
INFER = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\n"


def whole(body=BODY, extra=b""):
    return INFER + b"Content-Length: %d\r\n" % len(body) + extra + b"\r\n" + body


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2/models/rows/infer HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v2/models/rows/infer HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        INFER + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        INFER + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_nonsense_is_refused_and_hung_up_on(client, data):
    """Status 400, then the connection is closed; others are served."""
    assert raw(client.port, data).startswith(b"HTTP/1.1 400 ")
    assert client.infer(message()).status == 200


@settings(max_examples=60)
@given(data=st.binary(min_size=1, max_size=200), cut=st.integers(0, 200))
def test_any_bytes_leave_the_server_up(served_port, data, cut):
    """Random bytes, alone or in the middle of a right request."""
    request = whole()
    for sent in (data, request[:cut] + data + request[cut:]):
        with socket.create_connection(("127.0.0.1", served_port), timeout=60) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    client = Client(served_port)
    assert client.infer(message()).status == 200
    client.close()


@pytest.fixture(scope="module")
def served_port():
    with serving(make_program()) as port:
        yield port


def test_a_request_in_pieces_and_several_in_one(client):
    """Bytes may come one by one; requests that come together are answered in order."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        for byte in whole(extra=b"Connection: close\r\n"):
            connection.sendall(bytes([byte]))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    second = json.dumps(message(1, first=1.0)).encode()
    result = raw(client.port, whole() + whole(second) + whole(extra=b"Connection: close\r\n"))
    sums = [part.split(b",")[0].rstrip(b"]") for part in result.split(b'"data":[')[1::3]]
    assert [float(s.rstrip(b"]}")) for s in sums] == [6.0, 10.0, 6.0]


def test_chunked_bodies(client):
    """A body may come in chunks, as clients that stream send it."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (BODY[:7], BODY[7:]))
    head = INFER + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert raw(client.port, head + chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_expect_continue(client):
    """A client that waits to be told to go on is told so."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        head, _, body = whole(extra=b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_too_large_bodies_and_heads(serve):
    """413 by the header alone, or as soon as more came than allowed; 431 for endless headers."""
    client = serve(limits=Limits(max_body_bytes=1000))
    declared = INFER + b"Content-Length: 1001\r\n\r\n"
    assert raw(client.port, declared).startswith(b"HTTP/1.1 413 ")
    chunked = INFER + b"Transfer-Encoding: chunked\r\n\r\n" + b"3e9\r\n" + b" " * 1001
    assert raw(client.port, chunked).startswith(b"HTTP/1.1 413 ")
    endless = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000
    assert raw(client.port, endless).startswith(b"HTTP/1.1 431 ")
    assert client.infer(message()).status == 200


def test_all_bodies_together_are_bounded(serve):
    """Half-sent bodies of several clients do not fill the memory."""
    client = serve(limits=Limits(max_held_bytes=3000))
    half = INFER + b"Content-Length: 2000\r\n\r\n" + b" " * 1600
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as first:
        first.sendall(half)
        until(lambda: b"tremula_serving_connections 2" in client.ask("GET", "/metrics").body)
        assert raw(client.port, half).startswith(b"HTTP/1.1 503 ")
    assert client.infer(message()).status == 200


def test_encodings_are_refused(client):
    """A compressed body says 415."""
    result = raw(client.port, whole(extra=b"Content-Encoding: gzip\r\n"))
    assert result.startswith(b"HTTP/1.1 415 ")


def test_slow_requests_end(serve):
    """One that does not finish in time is told 408; one that never begins is hung up on."""
    client = serve(limits=Limits(request_seconds=1.0, idle_seconds=1.0))
    assert raw(client.port, whole()[:-5]).startswith(b"HTTP/1.1 408 ")
    assert raw(client.port, b"") == b""
    fresh = Client(client.port)
    assert fresh.infer(message()).status == 200
    fresh.close()


def test_slow_clients_do_not_stop_others(serve):
    """A hundred half-sent requests stay open while another client is served."""
    client = serve()
    half = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(100)]
    for connection in half:
        connection.sendall(whole()[:40])
    for _ in range(5):
        assert client.infer(message()).status == 200
    for connection in half:
        connection.close()


def for_ever(connection, data):
    while True:
        connection.sendall(data)


def test_a_client_that_does_not_read_is_cut_off(serve):
    """Answers that are not taken are kept for a while only; nothing more is read meanwhile."""
    client = serve(limits=Limits(write_seconds=0.3))
    ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        connection.settimeout(60)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for_ever(connection, ask * 100)
    assert client.infer(message()).status == 200


def test_connections_are_bounded(serve):
    """One more than allowed is told 503, and has a place again once another left."""
    client = serve(limits=Limits(max_connections=2))
    client.infer(message())
    other = socket.create_connection(("127.0.0.1", client.port))
    until(lambda: b"tremula_serving_connections 2" in client.ask("GET", "/metrics").body)
    assert raw(client.port, b"").startswith(b"HTTP/1.1 503 ")
    other.close()
    until(lambda: b"tremula_serving_connections 1" in client.ask("GET", "/metrics").body)
    assert raw(client.port, whole(extra=b"Connection: close\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_more_than_the_capacity(serve):
    """The server answers what it can, refuses the rest at once, and is as before afterwards."""
    gate = Gate()
    client = serve(make_program(gate), max_queue_batches=1)
    gate.opened.clear()
    inputs = {"x": np.ones((1, 4), np.float32), "tag": np.ones(1, np.int32)}
    url = f"http://127.0.0.1:{client.port}"
    load = load_test(url, "rows", inputs, seconds=1.5, n_connections=100)
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(asyncio.run, load)
        try:  # nothing is answered until one is refused, however slow this machine is
            until(lambda: b"refused_total 0" not in client.ask("GET", "/metrics").body)
        finally:
            gate.opened.set()
    assert result.result().n_broken == 0
    assert set(result.result().by_status) == {200, 503}
    assert client.infer(message()).status == 200


def test_stopping_finishes_what_began():
    """Requests in the queue are answered; new ones and new connections are not; idle ones go."""
    gate = Gate()
    answers = []
    with serving(make_program(gate), ServeSettings(drain_seconds=10)) as port:
        client, idle = Client(port), Client(port)
        idle.infer(message())
        gate.opened.clear()
        thread = threading.Thread(target=lambda: answers.append(client.infer(message(9))))
        thread.start()
        other = Client(port)
        until(lambda: b"queued_rows 1" in other.ask("GET", "/metrics").body)
        threading.Timer(0.2, gate.opened.set).start()
    thread.join()
    assert answers[0].status == 200
    assert answers[0].headers["Connection"] == "close"
    with pytest.raises(OSError):  # noqa: PT011 - refused
        socket.create_connection(("127.0.0.1", port), timeout=1)
    with pytest.raises((OSError, HTTPException)):
        idle.infer(message())
    for one in (client, idle, other):
        one.close()


def test_a_program_that_cannot_run_does_not_start():
    """The first run happens before the port opens, and its error is the caller's."""

    def run(_batch, _own):
        raise ValueError("no weights")

    program = make_program(run)
    with pytest.raises(ValueError, match="no weights"), serving(program):
        pass
