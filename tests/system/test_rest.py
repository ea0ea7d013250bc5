"""The API over HTTP: what it refuses, what it logs, and that nothing breaks it."""

import json
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.sampling import n_examples
from tests.system.conftest import ADMIN
from tremula.commands.system.server import add_arguments
from tremula.hardware import system
from tremula.system.control.controller import Controller
from tremula.system.web.rest import MAX_BODY_BYTES, make_app
from tremula.system.web.server import LOOP_BACK, listening_socket, serving


@pytest.fixture(scope="module")
def shared():
    """A controller that serves, with a user of each kind: base address and keys."""
    controller = Controller(":memory:")
    controller.add_cluster(ADMIN, "cl0", system("pod16"))
    keys = {"admin": controller.admin_key}
    for name, role in (("ann", "user"), ("bob", "user"), ("eve", "viewer"), ("oli", "operator")):
        keys[name] = controller.add_user(ADMIN, name, role)
    with serving(controller) as port, httpx.Client(base_url=f"http://{LOOP_BACK}:{port}") as http:
        yield http, keys, controller
    controller.close()


@pytest.fixture
def ask(shared):
    http, keys, _ = shared

    def ask(user, method, path, **value):
        headers = {"Authorization": f"Bearer {keys.get(user, user)}"} if user else {}
        return http.request(method, f"/api/v1/{path}", headers=headers, **value)

    return ask


def last_entry(controller):
    return controller.audit(ADMIN, 1)[0]


def test_keys_are_needed_and_checked(ask, shared):
    """Without a key, or with a wrong one, nothing is told; both are in the log."""
    for key, code in ((None, "no-key"), ("wrong", "wrong-key"), ("ipuof.1.00", "wrong-key")):
        answer = ask(key, "GET", "partitions")
        assert (answer.status_code, answer.json()["code"]) == (401, code)
        assert last_entry(shared[2])["outcome"] == f"refused: {code}"


def test_partitions_of_others_are_refused(ask, shared):
    """They are not listed, shown, reset, removed or attached to; each try is in the log."""
    assert ask("ann", "POST", "partitions", json={"name": "mine", "size": 2}).status_code == 200
    assert [p["name"] for p in ask("bob", "GET", "partitions").json()] == []
    for method, path in (
        ("GET", "partitions/mine"),
        ("GET", "partitions/mine/ipuof"),
        ("GET", "partitions/mine/monitor"),
        ("POST", "partitions/mine/reset"),
        ("DELETE", "partitions/mine?force=true"),
    ):
        assert ask("bob", method, path).status_code == 403, path
        entry = last_entry(shared[2])
        assert (entry["user"], entry["outcome"]) == ("bob", "refused: forbidden")
    seen = {d["partition"] for d in ask("bob", "GET", "devices").json()}
    assert seen == {"·", None}
    assert ask("eve", "GET", "partitions/mine").status_code == 200
    assert ask("eve", "DELETE", "partitions/mine").status_code == 403
    assert ask("ann", "DELETE", "partitions/mine").status_code == 200


def test_a_partitions_key_opens_that_partition_alone(ask, shared):
    """With the key of an IPUoF file a program can attach, and do nothing else."""
    for name in ("one", "two"):
        ask("ann", "POST", "partitions", json={"name": name, "size": 1})
    key = ask("ann", "GET", "partitions/one/ipuof").json()["key"]
    about = {"gcd": 0, "pid": 1, "host": "elsewhere", "user": "u", "command": "c"}
    ipus = {
        n: ask("ann", "GET", f"partitions/{n}").json()["gcds"][0]["ipus"] for n in ("one", "two")
    }
    lease = {"partition": "one", "ipus": ipus["one"], **about}
    held = ask(key, "POST", "leases", json=lease)
    assert held.status_code == 200
    assert ask(key, "POST", "leases", json=lease).json()["code"] == "held"
    other = {"partition": "two", "ipus": ipus["two"], **about}
    assert ask(key, "POST", "leases", json=other).status_code == 403
    for method, path in (
        ("GET", "partitions"), ("GET", "users"), ("DELETE", "partitions/one"),
        ("POST", "users/ann/key"),
    ):  # fmt: skip
        assert ask(key, method, path).status_code == 403, path
    assert ask("bob", "POST", f"leases/{held.json()['id']}/beat", json={}).status_code == 403
    assert ask("ann", "DELETE", "partitions/one").json()["code"] == "in-use"
    assert ask("ann", "DELETE", "partitions/one?force=true").status_code == 200
    assert ask(key, "GET", "partitions/one/monitor").status_code == 401  # worth nothing now
    ask("ann", "DELETE", "partitions/two")


def test_roles_and_quotas(ask):
    """Each role may do what its name says; a quota ends before the machine does."""
    assert ask("eve", "POST", "partitions", json={"name": "p", "size": 1}).status_code == 403
    fault = {"kind": "parity", "cluster": "cl0", "a": 15}
    assert ask("ann", "POST", "faults", json=fault).status_code == 403
    made = ask("oli", "POST", "faults", json=fault)
    assert ask("oli", "DELETE", f"faults/{made.json()['id']}").status_code == 200
    assert ask("oli", "GET", "audit").status_code == 403
    small = {"name": "sam", "max_ipus": 2, "max_partitions": 5}
    key = ask("admin", "POST", "users", json=small).json()["key"]
    assert ask(key, "POST", "partitions", json={"name": "s1", "size": 2}).status_code == 200
    refused = ask(key, "POST", "partitions", json={"name": "s2", "size": 1}).json()
    assert (refused["code"], refused["error"][:5]) == ("quota", "'sam'")
    assert ask("admin", "DELETE", "users/sam").json()["code"] == "in-use"
    new = ask(key, "POST", "users/sam/key").json()["key"]
    assert ask(key, "GET", "partitions").status_code == 401
    assert ask(new, "DELETE", "partitions/s1").status_code == 200
    assert ask("admin", "DELETE", "users/sam").status_code == 200
    assert ask("admin", "DELETE", "users/admin").json()["code"] == "in-use"


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "..%2f..%2fetc", "a..b", "", " ", "a b", "x" * 64, "é", "-a", "a\n"],
)
def test_invalid_names_are_refused(ask, shared, name):
    """Neither in a body nor in an address; the log has it."""
    answer = ask("ann", "POST", "partitions", json={"name": name, "size": 1})
    assert answer.status_code == 422
    assert last_entry(shared[2])["outcome"] == "refused: wrong"
    assert ask("ann", "GET", f"partitions/{quote(name)}").status_code in (307, 404, 405, 422)


def test_large_and_strange_bodies_are_refused(ask, shared):
    """Too long, of unknown length, not JSON, of a wrong type, with unknown names."""
    long = json.dumps({"name": "p", "size": 1, "topology": "x" * MAX_BODY_BYTES})
    assert ask("ann", "POST", "partitions", content=long).status_code == 413
    assert last_entry(shared[2])["outcome"] == "refused: too-large"
    assert ask("ann", "POST", "partitions", content=iter([b"{}"])).status_code == 413
    for body in ("{", '{"name": 1, "size": 1}', '{"name": "p", "size": 1, "colour": 2}', "[]"):
        assert ask("ann", "POST", "partitions", content=body).status_code == 422
    for size in (0, 3, 32, 2**31):
        answer = ask("ann", "POST", "partitions", json={"name": "p", "size": size})
        assert answer.status_code in (409, 422)


def test_a_wrong_method_names_those_allowed(ask):
    """An address that has no such method answers 405 in the form of all errors, with Allow."""
    answer = ask("ann", "PATCH", "partitions")
    assert answer.status_code == 405
    assert answer.json()["code"] == "http"
    assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


def test_metrics_from_elsewhere_need_a_key(shared):
    """This computer may scrape; a request that came through a proxy shows a key."""
    http, keys, _ = shared
    assert http.get("/metrics").status_code == 200
    assert http.get("/metrics", headers={"Host": "evil.example"}).status_code == 401
    proxied = {"X-Forwarded-For": "127.0.0.1"}
    assert http.get("/metrics", headers=proxied).status_code == 401
    proxied["Authorization"] = f"Bearer {keys['eve']}"
    assert http.get("/metrics", headers=proxied).status_code == 200


def test_the_page_takes_its_key_into_a_cookie(shared):
    """The cookie reads, and cannot change anything; other names of files lead nowhere."""
    http, keys, _ = shared
    moved = http.get("/", params={"key": keys["eve"]})
    assert moved.status_code == 303
    assert "HttpOnly" in moved.headers["set-cookie"]
    cookie = {"Cookie": f"tremula_vipu={keys['admin']}"}
    assert http.get("/api/v1/state", headers=cookie).status_code == 200
    assert http.post("/api/v1/partitions", json={}, headers=cookie).status_code == 401
    assert http.get("/", params={"key": "wrong"}).status_code == 401
    assert "default-src 'none'" in http.get("/").headers["content-security-policy"]
    assert http.get("/page/..%2frest.py").status_code == 404


def test_the_server_listens_here_alone():
    """Unless told otherwise, it binds to the loop-back address."""
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args([]).host == LOOP_BACK
    with listening_socket(LOOP_BACK, 0) as made:
        assert made.getsockname()[0] == LOOP_BACK


# -- fuzzing ---------------------------------------------------------------------------------------

_FUZZED = Controller(":memory:")
_FUZZED.add_cluster(ADMIN, "cl0", system("pod4"))
pytest_plugins = ("schemathesis.pytest.plugin",)  # makes a test of each operation
_SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", make_app(_FUZZED))


@pytest.mark.slow
@_SCHEMA.parametrize()
@settings(max_examples=n_examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_it_fail(case):
    """Anything that its own description allows, and much that it does not, has an answer."""
    assert_answered(case)


def assert_answered(case):
    case.headers = {**(case.headers or {}), "Authorization": f"Bearer {_FUZZED.admin_key}"}
    answer = case.call()
    assert answer.status_code < 500, answer.text
