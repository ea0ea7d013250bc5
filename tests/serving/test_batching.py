"""Batches: rows of several requests share one, the queue is bounded, failures stay alone."""

import json
import threading

import numpy as np
import pytest

from tests.serving.conftest import N_BATCH, Client, Gate, make_program, message, until
from tremula.base.errors import InvalidOption, TypeMismatch
from tremula.serving.program import program_from_call


def metrics(client):
    text = client.ask("GET", "/metrics").body.decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("tremula_serving_"): float(value) for name, value in lines}


def together(port, n, n_rows=1):
    """n requests at once, each from another client; their answers."""
    answers, threads = [None] * n, []

    def ask(i):
        client = Client(port)
        answers[i] = client.infer(message(n_rows, first=10.0 * i))
        client.close()

    for i in range(n):
        threads.append(threading.Thread(target=ask, args=(i,)))
        threads[-1].start()
    return answers, threads


def test_requests_share_batches(serve):
    """Eight requests of one row that arrive while a batch runs take two full batches."""
    gate = Gate()
    client = serve(make_program(gate))
    gate.opened.clear()
    n_before = gate.n_runs
    first, waiting = together(client.port, 1)
    until(lambda: gate.n_arrived == n_before + 1)
    answers, threads = together(client.port, 8)
    until(lambda: metrics(client)["queued_rows"] == 4)  # four more wait for the thread
    gate.opened.set()
    for thread in (*waiting, *threads):
        thread.join()
    assert first[0].status == 200
    for i, answer in enumerate(answers):
        assert answer.body["outputs"][0]["data"] == [6.0 + 40 * i]
    assert gate.n_runs - n_before == 3


def test_a_lone_request_does_not_wait_for_ever(serve):
    """After `max_delay_s` a batch starts with gaps."""
    assert serve(max_delay_s=0.05).infer(message()).status == 200


def test_a_full_queue_refuses(serve):
    """Rows beyond the queue are answered 503 with Retry-After; those in it are served."""
    gate = Gate()
    client = serve(make_program(gate), max_queue_batches=1)
    gate.opened.clear()
    kept, threads = together(client.port, 3, n_rows=N_BATCH)  # one runs, one is next, one waits
    until(lambda: metrics(client)["queued_rows"] == N_BATCH)
    refused = client.infer(message())
    assert refused.status == 503
    assert "the queue is full: 4 of 4 rows wait" in refused.body["error"]
    assert refused.headers["Retry-After"] == "1"
    assert metrics(client)["refused_total"] == 1
    gate.opened.set()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in kept] == [200] * 3
    assert client.infer(message()).status == 200


def test_a_request_larger_than_the_queue_is_refused(serve):
    """It could never be served, and says how many rows fit."""
    answer = serve(max_queue_batches=2).infer(message(9))
    assert answer.status == 503
    assert "0 of 8 rows wait, and 9 more do not fit" in answer.body["error"]


def test_a_program_that_fails_answers_500_and_goes_on(serve):
    """The error reaches the clients of that batch alone."""

    def run(batch, own):
        if batch[0].max() > 100:
            raise ValueError("too hot")
        return own(batch)

    client = serve(make_program(run))
    answer = client.infer(message(1, first=200.0))
    assert answer.status == 500
    assert answer.body["error"] == "rows failed: too hot"
    assert client.infer(message()).status == 200
    assert metrics(client)["failed_batches_total"] == 1


def test_wrong_outputs_of_a_program_are_its_failure(serve):
    """Another shape than promised is an error, not a wrong answer."""
    asked = []

    def run(batch, own):
        asked.append(1)
        return own(batch) if len(asked) == 1 else own([a[:2] for a in batch])

    answer = serve(make_program(run)).infer(message())
    assert answer.status == 500
    assert "gave shapes" in answer.body["error"]


def test_infinities_need_bytes(serve):
    """JSON has no infinity: the answer says to ask for binary data."""

    def run(batch, own):
        return [array * np.array(np.inf, array.dtype) if array.dtype.kind == "f" else array
                for array in own([batch[0] + 1, batch[1]])]  # fmt: skip

    client = serve(make_program(run))
    answer = client.infer(message())
    assert answer.status == 500
    assert "ask for binary_data" in answer.body["error"]
    answer = client.infer(message(1, parameters={"binary_data_output": True}))
    assert answer.status == 200


def test_rows_of_clients_that_left_are_not_computed(serve):
    """A client that hangs up takes its waiting rows along."""
    gate = Gate()
    client = serve(make_program(gate))
    gate.opened.clear()
    answers, threads = together(client.port, 3, n_rows=N_BATCH)
    until(lambda: metrics(client)["queued_rows"] == N_BATCH)
    leaving = Client(client.port)
    leaving.connection.request("POST", "/v2/models/rows/infer", json.dumps(message()))
    until(lambda: metrics(client)["queued_rows"] == N_BATCH + 1)
    leaving.close()
    until(lambda: metrics(client)["queued_rows"] == N_BATCH)
    gate.opened.set()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 3


def test_metrics_are_what_prometheus_reads(serve):
    """Its own parser reads the page; counts are those of the requests made."""
    parser = pytest.importorskip("prometheus_client.parser")
    client = serve()
    client.infer(message(3))
    client.infer(b"{")
    text = client.ask("GET", "/metrics").body.decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    samples = {(s.name, *s.labels.values()): s.value for f in families.values() for s in f.samples}
    assert samples["tremula_serving_rows_total",] == 3
    assert samples["tremula_serving_requests_total", "200"] == 1
    assert samples["tremula_serving_requests_total", "400"] == 1
    assert samples["tremula_serving_latency_seconds_count",] == 1
    assert samples["tremula_serving_latency_seconds_bucket", "+Inf"] == 1
    assert samples["tremula_serving_ready",] == 1


def test_what_cannot_be_served_is_told():
    """Outputs without a batch, inputs with several, and types the protocol lacks."""
    with pytest.raises(InvalidOption, match="cannot be split into rows"):
        program_from_call(
            lambda batch: [batch[0].sum()], [np.zeros((2, 3))], name="total", platform="test"
        )
    with pytest.raises(InvalidOption, match="differ in their first size"):
        program_from_call(list, [np.zeros(2), np.zeros(3)], name="two", platform="test")
    with pytest.raises(TypeMismatch, match="complex128, which the V2 protocol cannot carry"):
        program_from_call(list, [np.zeros(2, complex)], name="c", platform="test")
