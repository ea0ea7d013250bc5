"""The client and the load test: arrays come back, refusals are errors, times are taken."""

import asyncio
import re

import numpy as np
import pytest

from tests.serving.conftest import make_program
from tremula.base.errors import InvalidOption, RuntimeFailure
from tremula.commands import main
from tremula.serving.client import InferenceClient
from tremula.serving.load import load_test

ROWS = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "tag": np.array([5, 6], np.int32)}


@pytest.fixture
def url(serve):
    return f"http://127.0.0.1:{serve().port}"


def test_arrays_in_and_out(url):
    """Outputs come by name, with their types and shapes."""
    with InferenceClient(url) as client:
        assert client.metadata("rows")["platform"] == "test"
        result = client.infer("rows", ROWS)
        assert result["sum"].tolist() == [6.0, 22.0]
        assert result["twice"].dtype == np.float16
        assert np.array_equal(result["twice"], 2 * ROWS["x"])
        assert result["tag_out"].tolist() == [5, 6]


def test_refusals_are_errors(url):
    """The server's reason is in the message; an address that is none is named."""
    with InferenceClient(url) as client, pytest.raises(RuntimeFailure, match=r"400: .*'tag'"):
        client.infer("rows", {"x": ROWS["x"]})
    with pytest.raises(InvalidOption, match="'localhost:1' is not the address"):
        InferenceClient("localhost:1")


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_load_test_counts_and_times(url, is_binary):
    """No more answers come than the rate allows, all of them good, with sensible times."""
    result = asyncio.run(
        load_test(url, "rows", ROWS, seconds=0.5, n_connections=4, rate=40, is_binary=is_binary)
    )
    assert set(result.by_status) == {200}
    assert 1 <= result.by_status[200] <= 20
    assert result.n_broken == 0
    assert 0 < result.percentile_s(50) <= result.percentile_s(99) < 10


def test_the_load_test_command(serve, capsys):
    """It makes inputs from the model's description, and prints rates, times and statuses."""
    url = f"http://127.0.0.1:{serve(make_program()).port}"
    line = f"load-test {url} rows --seconds 1 --rate 20 --connections 2 --rows 3"
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    assert "rows/s" in text
    assert "99 % within" in text
    assert re.search(r"status 200: \d", text)
    assert main(["load-test", url, "other"]) == 1
    assert "there is no model 'other'" in capsys.readouterr().err
    assert main(["load-test", "127.0.0.1:9", "rows"]) == 1
    assert "is not the address of a server" in capsys.readouterr().err
    assert main(["load-test", "http://127.0.0.1:9", "rows", "--json"]) == 1
    assert "no server of the V2 protocol answers" in capsys.readouterr().err
