"""Clients of the controller that are slow on purpose are cut; its pages need no other server."""

import re
import socket
import time

import httpx
import pytest

from tests.system.conftest import attached_to
from tremula.commands import main
from tremula.system.web import slow_clients


def _is_cut(port, *parts):
    """Whether the server ends the connection after some bytes, in about the time it gives."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.1)
            while connection.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            return True
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"GET /api/v1/version HT"],
        [b"POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"],
        [b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /api/v1/ver"],
    ],
)
def test_requests_that_do_not_arrive(admin, parts, monkeypatch):
    """Nothing sent, half a head, half a body, half a second request: cut; others are served."""
    monkeypatch.setattr(slow_clients, "REQUEST_SECONDS", 0.5)
    assert _is_cut(admin.port, *parts)
    assert admin.get("version")


def test_broken_bodies_leave_no_tracebacks(admin, logged):
    """A client that sends a broken body and hangs up cannot fill the log with errors."""
    head = b"DELETE /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", admin.port), timeout=5) as connection:
            connection.sendall(head)
    assert admin.get("version")
    assert not [record for record in logged.records if record.levelname == "ERROR"]


def test_the_page_of_the_api_needs_no_other_server(admin):
    """`/docs` lists every request of the API, and loads nothing from elsewhere."""
    with httpx.Client(base_url=f"http://127.0.0.1:{admin.port}") as http:
        answer = http.get("/docs")
        paths = http.get("/openapi.json").json()["paths"]
    assert answer.status_code == 200
    assert all(path in answer.text for path in paths)
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_browser_signs_in_with_a_key(admin):
    """The key moves into a cookie that can look and nothing else; a wrong one does not."""
    with httpx.Client(base_url=f"http://127.0.0.1:{admin.port}") as http:
        wrong = http.post("/api/v1/session", headers={"Authorization": "Bearer wrong"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        right = http.post("/api/v1/session", headers={"Authorization": f"Bearer {admin.key}"})
        assert "HttpOnly" in right.headers["set-cookie"]
        assert http.get("/api/v1/state").status_code == 200


@pytest.mark.parametrize("test", ["memorytest", "exchangetest"])
def test_devices_of_a_default_partition_are_tested(admin, monkeypatch, tmp_path, capsys, test):
    """A usual partition is one device of all its IPUs: tests run there without options."""
    with attached_to(admin, "p2", monkeypatch, tmp_path, size=2):
        assert main(["system", test, "--tiles", "4"]) == 0
    assert capsys.readouterr().out.startswith("PASS")
