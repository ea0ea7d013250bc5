"""The V2 protocol: health, metadata, inference with JSON and bytes, and its errors."""

import json

import numpy as np
import pytest

from tests.serving.conftest import message


def test_health_and_metadata(client):
    """Live, ready, the server's and the model's descriptions, with and without a version."""
    assert client.ask("GET", "/v2/health/live").status == 200
    assert client.ask("GET", "/v2/health/ready").body == {"ready": True}
    assert client.ask("GET", "/v2/models/rows/ready").status == 200
    assert client.ask("GET", "/v2/models/rows/versions/1/ready").status == 200
    server = client.ask("GET", "/v2").body
    assert (server["name"], server["extensions"]) == ("tremula", ["binary_tensor_data"])
    model = client.ask("GET", "/v2/models/rows").body
    assert model == {
        "name": "rows",
        "versions": ["1"],
        "platform": "test",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "tag", "datatype": "INT32", "shape": [-1]},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1]},
            {"name": "twice", "datatype": "FP16", "shape": [-1, 4]},
            {"name": "tag_out", "datatype": "INT32", "shape": [-1]},
        ],
    }


@pytest.mark.parametrize("n_rows", [1, 3, 4, 5, 17])
def test_rows_of_json(client, n_rows):
    """Any number of rows is answered, whatever the batch of the program: 4."""
    answer = client.infer(message(n_rows, id="seven"))
    assert answer.status == 200
    assert (answer.body["model_name"], answer.body["id"]) == ("rows", "seven")
    outputs = {tensor["name"]: tensor for tensor in answer.body["outputs"]}
    assert outputs["sum"]["data"] == [6.0 + 4 * r for r in range(n_rows)]
    assert outputs["twice"]["shape"] == [n_rows, 4]
    assert outputs["tag_out"]["data"] == list(range(n_rows))


def test_flat_data_and_chosen_outputs(client):
    """Data may be a flat list; only outputs that were asked for come, in that order."""
    asked = message(1, outputs=[{"name": "tag_out"}, {"name": "sum"}])
    asked["inputs"][0]["data"] = [1, 2, 3, 4]
    answer = client.infer(asked)
    assert [tensor["name"] for tensor in answer.body["outputs"]] == ["tag_out", "sum"]
    assert answer.body["outputs"][1]["data"] == [10.0]


def binary_body(x, tag, **changes):
    described = [
        {"name": name, "datatype": kind, "shape": list(a.shape),
         "parameters": {"binary_data_size": a.nbytes}}
        for name, kind, a in (("x", "FP32", x), ("tag", "INT32", tag))
    ]  # fmt: skip
    head = json.dumps({"inputs": described, **changes}).encode()
    return head + x.tobytes() + tag.tobytes(), {"Inference-Header-Content-Length": str(len(head))}


def test_bytes_in_and_out(client):
    """The binary extension: tensors follow the JSON; each output can be asked for either way."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    tag = np.array([7, 8], np.int32)
    wanted = [{"name": "twice", "parameters": {"binary_data": True}}, {"name": "sum"}]
    answer = client.infer(*binary_body(x, tag, outputs=wanted))
    assert answer.status == 200
    n = int(answer.headers["Inference-Header-Content-Length"])
    head = json.loads(answer.body[:n])
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert np.array_equal(np.frombuffer(answer.body[n:], np.float16).reshape(2, 4), 2 * x)
    assert head["outputs"][1]["data"] == [6.0, 22.0]


def test_all_outputs_as_bytes(client):
    """`binary_data_output` asks for bytes of every output."""
    x, tag = np.ones((1, 4), np.float32), np.array([3], np.int32)
    answer = client.infer(*binary_body(x, tag, parameters={"binary_data_output": True}))
    n = int(answer.headers["Inference-Header-Content-Length"])
    assert (
        answer.body[n:] == np.float32(4).tobytes() + 2 * np.float16(2).tobytes() * 2 + tag.tobytes()
    )


def changed(place, **fields):
    asked = message(2)
    asked["inputs"][place].update(fields)
    return asked


WRONG = {
    "not JSON": (b"{", "is not JSON"),
    "a list": ([], "must be an object"),
    "NaN": (b'{"inputs": NaN}', "NaN is not a finite number"),
    "nested deeply": (b"[" * 100_000, "is not JSON"),
    "no inputs": ({}, "needs `inputs`"),
    "an input is missing": ({"inputs": message()["inputs"][:1]}, "lacks input 'tag'"),
    "an unknown input": (changed(0, name="y"), "there is no input 'y'"),
    "a misspelt input": (changed(1, name="tga"), "did you mean 'tag'"),
    "twice": ({"inputs": message()["inputs"][:1] * 2}, "given twice"),
    "another type": (changed(0, datatype="FP64"), "has the datatype FP32, got 'FP64'"),
    "no type": (changed(0, datatype=None), "has the datatype FP32, got None"),
    "another shape": (changed(0, shape=[2, 5]), "has the shape [rows, 4], got [2, 5]"),
    "no rows": (changed(0, shape=[0, 4]), "has the shape"),
    "a text as shape": (changed(0, shape="2,4"), "has the shape"),
    "a negative size": (changed(0, shape=[-2, 4]), "has the shape"),
    "too few numbers": (changed(0, data=[1, 2]), "needs 8 numbers"),
    "another nesting": (changed(0, data=[[1, 2], [3, 4], [5, 6], [7, 8]]), "flat or in its shape"),
    "ragged": (changed(0, data=[[1, 2, 3, 4], [5]]), "must be numbers"),
    "texts": (changed(0, data=["1"] * 8), "must be numbers"),
    "no data": (changed(0, data=None), "needs `data`"),
    "fractions for integers": (changed(1, data=[0.5, 1]), "must be whole numbers"),
    "too large an integer": (changed(1, data=[2**31, 0]), "holds -2,147,483,648 to"),
    "far too large an integer": (changed(1, data=[2**70, 0]), "whole numbers"),
    "rows that differ": (
        {"inputs": [message(2)["inputs"][0], message(1)["inputs"][1]]}, "number of rows",
    ),
    "an id that is none": (message(1, id=7), "`id` must be a text"),
    "an unknown output": (message(1, outputs=[{"name": "total"}]), "there is no output 'total'"),
    "a wrong flag": (message(1, parameters={"binary_data_output": 1}), "true or false"),
    "wrong parameters": (message(1, parameters=[]), "must be an object"),
    "bytes that are not there": (changed(0, parameters={"binary_data_size": 32}), "does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_are_refused_with_a_reason(serve_once, case):
    """Status 400 and `error`, in the client's names; the next request is answered."""
    body, words = WRONG[case]
    answer = serve_once.infer(body)
    assert answer.status == 400
    assert words in answer.body["error"]
    assert serve_once.infer(message()).status == 200


@pytest.mark.parametrize("length", ["-1", "x", "99999", "１", "1" * 30])
def test_wrong_lengths_of_the_json_are_refused(serve_once, length):
    """A header that does not fit the body is named."""
    if not length.isascii():
        length = length.encode().decode("latin-1")
    answer = serve_once.infer(message(), {"Inference-Header-Content-Length": length})
    assert answer.status == 400
    assert "Inference-Header-Content-Length" in answer.body["error"]


def test_bytes_left_over_are_refused(serve_once):
    """Bytes that belong to no input, and tensors that are too short, are errors."""
    body, headers = binary_body(np.ones((1, 4), np.float32), np.array([3], np.int32))
    assert "belong to no input" in serve_once.infer(body + b"xx", headers).body["error"]
    short = body.replace(b'"shape": [1, 4]', b'"shape": [2, 4]')
    assert "needs 32 bytes for 2 rows, got 16" in serve_once.infer(short, headers).body["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v2/models/row", 404),
        ("GET", "/v2/models/rows/versions/2", 404),
        ("GET", "/v2/models/rows/infer", 405),
        ("POST", "/v2/health/live", 405),
        ("DELETE", "/v2/models/rows", 405),
    ],
)
def test_other_addresses_and_methods(serve_once, method, path, status):
    """What is not there is 404, what is not done that way 405, each with an `error`."""
    answer = serve_once.ask(method, path)
    assert answer.status == status
    assert answer.body["error"]


@pytest.fixture(scope="module")
def serve_once():
    """One server for all wrong requests: none may hurt the next."""
    from tests.serving.conftest import Client, make_program
    from tremula.serving.server import serving

    with serving(make_program()) as port:
        client = Client(port)
        yield client
        client.close()
