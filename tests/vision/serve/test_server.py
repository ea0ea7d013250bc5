"""The server answers only its own page; it serves the page's files and packs only."""

import http.client
import json
import shutil
import threading
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest

from tests.vision.serving import serving
from tremula.base.errors import InvalidOption
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.serve.page_files import page_files
from tremula.vision.serve.server import PageServer


def ask(server, path, method="GET", **headers):
    """Status, headers and body of a request; names of headers are written with underscores."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.putrequest(method, path, skip_host="Host" in given)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_token_opens_the_page_and_leaves_the_address(small_server):
    """The printed address sets a strict cookie and redirects to an address without the token."""
    url = urlsplit(small_server.url)
    status, headers, _ = ask(small_server, f"/?{url.query}")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    status, headers, body = ask(small_server, "/", Cookie=cookie.split(";")[0])
    assert status == 200
    assert b"page/main.js" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/data/index", "/page/main.js"])
def test_nothing_without_the_token(small_server, path):
    """Without the token nothing is served; the answer says what to do."""
    status, _, body = ask(small_server, path)
    assert status == 401
    assert b"tremula view" in body
    assert ask(small_server, path, Cookie="tremula_1=x; \x01")[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_other_sites_get_nothing(small_server, headers):
    """Another name, origin or site is refused even with the token."""
    status, answered, _ = ask(
        small_server, "/data/index", X_Tremula_Token=small_server.token, **headers
    )
    assert status == 403
    assert "Access-Control-Allow-Origin" not in answered


@pytest.mark.slow
def test_names_of_this_computer(small_server, small_report):
    """localhost works, at any port a tunnel has; other names must be given, and 403 says how."""
    token = {"X_Tremula_Token": small_server.token}
    for host in ("localhost:9000", "LOCALHOST", "127.0.0.1:1", "[::1]:80"):
        assert ask(small_server, "/data/index", Host=host, **token)[0] == 200
        origin = f"http://{host.lower()}"
        assert ask(small_server, "/data/index", Host=host, Origin=origin, **token)[0] == 200
    for host in ("mybox.example", "localhost.evil.example", "127.0.0.1.evil.example"):
        status, _, body = ask(small_server, "/data/index", Host=f"{host}:80", **token)
        assert status == 403
        assert f"tremula view --host-name {host} REPORT".encode() in body
    for host in ("", "a b", "evil\u00e9", "[::1"):
        assert ask(small_server, "/data/index", Host=host, **token)[0] == 403
    with serving(small_report, host_names=["MyBox.example"]) as server:
        asked = ask(server, "/data/index", Host="mybox.example", X_Tremula_Token=server.token)
        assert asked[0] == 200
    with pytest.raises(InvalidOption, match="not a host name"):
        PageServer(PageData([]), host_names=["mybox:80"])


@pytest.mark.slow
def test_a_newer_report_is_noticed(small_report, larger_report, tmp_path):
    """News tell of a report written again; the next page shows it, and older pages are told."""
    path = tmp_path / "profile.pop"
    shutil.copy(small_report / "profile.pop", path)

    def asked(what):
        return ask(server, what, X_Tremula_Token=server.token)

    with serving(path) as server:
        first = unpack_pack(asked("/data/index")[2])[0]
        assert json.loads(asked("/news")[2])["newer"] == []
        assert asked("/data/0/tiles?generation=0")[0] == 200
        shutil.copy(larger_report / "profile.pop", tmp_path / "new")
        (tmp_path / "new").replace(path)
        assert json.loads(asked("/news")[2])["newer"] == [tmp_path.name]
        assert asked("/data/0/tiles?generation=0")[0] == 200  # until it is opened
        second = unpack_pack(asked("/data/index")[2])[0]
        assert json.loads(asked("/news")[2])["newer"] == []
        totals = [facts["reports"][0]["total_cycles"] for facts in (first, second)]
        assert totals[0] != totals[1]
        status, _, body = asked("/data/0/tiles?generation=0")
        assert status == 409
        assert b"written again" in body
        (tmp_path / "bad").write_bytes(b"no report")
        (tmp_path / "bad").replace(path)
        third = unpack_pack(asked("/data/index")[2])[0]
        assert third["reports"] == second["reports"]
        assert "does not start like one" in third["problem"]
        path.unlink()
        assert json.loads(asked("/news")[2])["newer"] == []


@pytest.mark.parametrize(
    "path",
    ["/page/../server.py", "/page/%2e%2e/server.py", "/page/..%2fserver.py", "//etc/passwd",
     "/page//etc/passwd", "/data/../../x", "/profile.pop", "/page/"],
)  # fmt: skip
def test_no_other_files(small_server, path):
    """Only the page's own files have addresses; no path leads out of them."""
    assert ask(small_server, path, X_Tremula_Token=small_server.token)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_read_only(small_server, method):
    """Nothing can be sent."""
    assert ask(small_server, "/data/index", method, X_Tremula_Token=small_server.token)[0] == 501


def send(server, content, name="x.pop", n_bytes=None, **headers):
    """Status and body of an upload that says how long it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.putrequest("POST", "/open")
    sent = {"Content_Length": str(len(content) if n_bytes is None else n_bytes), **headers}
    for header, value in {"X_Tremula_Name": name, **sent}.items():
        connection.putheader(header.replace("_", "-"), value)
    connection.endheaders(content)
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    return result


def test_reports_that_the_page_opens(report_file, engine):
    """Only the page may send a report; it is checked, shown, and removed at the end."""
    content = report_file.read_bytes()
    with serving(report_file) as server:
        token = {"X_Tremula_Token": server.token}
        assert send(server, content)[0] == 401
        assert send(server, content, Origin="http://evil.example", **token)[0] == 403
        assert send(server, b"", n_bytes=1 << 40, **token)[0] == 413
        assert send(server, b"", **token)[0] == 413
        status, body = send(server, b"no report", "../../odd%0aname.pop", **token)
        assert (status, b"does not start like one" in body) == (422, True)
        assert b"tremula-opened" not in body
        assert len(server.data.readers) == 1
        assert send(server, content, "../a%2Fb.pop", **token) == (200, b'{"report": 1}')
        path = server.data.readers[1].path
        assert path.name == "b.pop"
        facts = unpack_pack(ask(server, "/data/index", **token)[2])[0]
        assert [r["title"] for r in facts["reports"]][1] == "b.pop"
        for _ in range(7):
            assert send(server, content, **token)[0] == 200
        assert b"already" in send(server, content, **token)[1]
    assert not path.exists()


@pytest.mark.parametrize(
    "name",
    ["", "2/summary", "0/nothing", "0/summary/1", "0/trace/999999", "0/trace/-1",
     "0/heat/phases/0/0/0", "0/heat/phases/99/0/0/0", "0/heat/live/0/0/99999/0", "compare",
     "0/tile-contents/x", "0",
     "0/step-tiles/1e3", "0/step-tiles/²", "-1/summary", "0/trace/9999999999999999999999"],
)  # fmt: skip
def test_unknown_packs(small_server, name):
    """A name that does not exist is a plain 404, whatever is in it."""
    status, _, body = ask(
        small_server, "/data/" + name.replace("²", "%C2%B2"), X_Tremula_Token=small_server.token
    )
    assert status == 404
    assert b"Traceback" not in body


def test_a_bug_is_told_as_one(small_server, monkeypatch):
    """What fails in our code is not said to be missing; the server hears of it, too."""
    heard = threading.Event()
    monkeypatch.setattr(small_server, "handle_error", lambda *_: heard.set())
    monkeypatch.setattr(small_server.data, "pack", Mock(side_effect=IndexError("a bug")))
    status, _, body = ask(small_server, "/data/0/steps", X_Tremula_Token=small_server.token)
    assert (status, body[:24]) == (500, b"This is a bug in Tremula")
    assert heard.wait(10)


@pytest.mark.parametrize(
    ("error", "is_shown"), [(BrokenPipeError(), False), (ConnectionResetError(), False),
                            (RuntimeError("a bug"), True)],
)  # fmt: skip
def test_browsers_that_go_away_leave_no_tracebacks(small_server, capsys, error, is_shown):
    """A connection that ends early prints nothing; a bug does."""
    try:
        raise error  # noqa: TRY301
    except Exception:  # noqa: BLE001 - as the server meets it
        small_server.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) is is_shown


def test_packs_are_served_as_they_are(small_server):
    """What is served is the pack itself."""
    status, headers, body = ask(small_server, "/data/0/summary", X_Tremula_Token=small_server.token)
    assert status == 200
    assert headers["Content-Type"] == "application/octet-stream"
    assert unpack_pack(body)[0]["graph"]["steps"] == small_server.data.readers[0].n_steps


def test_page_weight():
    """All files of the page together are at most 600 KB."""
    assert sum(map(len, page_files().values())) <= 600_000
