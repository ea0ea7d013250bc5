"""`tremula serve` as a process: it says where it is, answers, and stops when it is asked to."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.serving.test_sources import onnx_model
from tremula.commands import main
from tremula.serving.client import InferenceClient


@pytest.mark.slow
def test_an_onnx_model_is_served_until_sigterm(tmp_path):
    """The address is printed, rows are answered, and SIGTERM ends it with a count of answers."""
    path = onnx_model(tmp_path / "affine.onnx")
    command = [sys.executable, "-m", "tremula", "serve", str(path), "--batch", "4", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("POST "):
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended"
        assert lines[0] == "affine: batches of 4, tremula_onnx\n"
        assert lines[1] == "  input  x: FP32[rows, 3]\n"
        address = lines[-1].split()[1]
        with InferenceClient(address.partition("/v2/")[0]) as client:
            rows = np.ones((5, 3), np.float32)
            assert client.infer("affine", {"x": rows})["y"].tolist() == [[4.0, 11.0]] * 5
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert "stopped; answers by status: 1 × 200" in process.stdout.read()
    assert process.returncode == 0


def test_what_cannot_be_served_is_told(capsys, tmp_path):
    """A missing file, an application that has no server, a name that is unknown."""
    for what, words in (
        (str(tmp_path / "none.onnx"), "there is no file"),
        ("mnist_poptorch", "is not an application that can be served"),
        ("served_digit", "did you mean 'served_digits'"),
    ):
        assert main(["serve", what, "--port", "0"]) == 1
        assert words in capsys.readouterr().err
