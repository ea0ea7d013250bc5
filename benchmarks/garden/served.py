"""Serving against a loop: a server in this process, clients in another, both in turn."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import RuntimeFailure
from tremula.serving.program import ServedProgram
from tremula.serving.server import ServeSettings, serving

N_BATCH, SIDE = 8, 64
ROUNDS, SECONDS = 5, 4
# Enough for two full batches in flight and one that fills up.
N_CONNECTIONS = 4 * N_BATCH

CLIENT = """
import asyncio, json, sys
import numpy as np
from tremula.serving.load import load_test
request = json.loads(sys.argv[1])
rows = np.random.default_rng(0).standard_normal((1, *request.pop("shape"))).astype(np.float32)
load = asyncio.run(load_test(inputs={"images": rows}, **request))
print(json.dumps({
    "rate": load.rate, "p99": load.percentile_s(99),
    "lost": load.n_broken + sum(n for s, n in load.by_status.items() if s not in (200, 503)),
}))
"""


@dataclass(frozen=True, slots=True)
class Served:
    throughput: float  # good answers per second ÷ rows per second of the loop
    p99: float  # ÷ the time of a batch
    overload: float  # as throughput, when ten times as much is asked
    n_lost: int  # connections that broke, and answers other than 200 and 503


def resnet18() -> ServedProgram:
    """ResNet-18 with random weights on small pictures: some milliseconds for a row."""
    import torch

    import poptorch
    from tremula.garden.models.resnet import resnet18 as network
    from tremula.serving.sources import program_of_poptorch

    torch.manual_seed(0)
    model = poptorch.inferenceModel(network().eval())
    batch = {"x": np.zeros((N_BATCH, 3, SIDE, SIDE), np.float32)}
    return program_of_poptorch(model, batch, name="resnet18")


def measure_serving() -> Served:
    """Rounds of loop, full load, half load and overload; medians of their ratios."""
    program = resnet18()
    (name,) = (spec.name for spec in program.inputs)
    throughputs, tails, overloads, n_lost = [], [], [], 0
    with serving(program, ServeSettings(max_queue_batches=4)) as port:
        for _ in range(ROUNDS):
            before = _batch_seconds(program)
            full = _asked(port, name)
            batch_s = statistics.mean((before, _batch_seconds(program)))
            capacity = N_BATCH / batch_s
            half = _asked(port, name, rate=capacity / 2)
            batch_s = statistics.mean((batch_s, _batch_seconds(program)))
            over = _asked(port, name, rate=10 * capacity, n_connections=8 * N_CONNECTIONS)
            throughputs.append(full["rate"] / capacity)
            tails.append(half["p99"] / batch_s)
            overloads.append(over["rate"] / capacity)
            n_lost += sum(int(result["lost"]) for result in (full, half, over))
    median = statistics.median
    return Served(median(throughputs), median(tails), median(overloads), n_lost)


def _batch_seconds(program: ServedProgram) -> float:
    """Of a batch in a loop."""
    random = np.random.default_rng(0)
    batch = [random.standard_normal(a.shape).astype(a.dtype) for a in program.zeros()]
    program.checked_run(batch)
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS / 2:
        program.checked_run(batch)
        n += 1
    return (time.perf_counter() - began) / n


def _asked(
    port: int, input_name: str, *, rate: float | None = None, n_connections: int = N_CONNECTIONS
) -> dict[str, float]:
    request = {
        "url": f"http://127.0.0.1:{port}", "model": "resnet18", "shape": [3, SIDE, SIDE],
        "seconds": SECONDS, "n_connections": n_connections, "rate": rate,
    }  # fmt: skip
    code = CLIENT.replace('"images"', repr(input_name))
    command = [sys.executable, "-c", code, json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeFailure(f"the clients failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)
