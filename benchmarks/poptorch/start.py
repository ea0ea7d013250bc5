"""Seconds from a script's first call to full speed with `auto`, in this process.

    python -m benchmarks.poptorch.start gpt2-small-bf16
    python -m benchmarks.poptorch.start gpt2-small-bf16     # again: with what the first has cached

A name is one of `benchmarks.poptorch.models.case_named`. The log of the start is printed, and the
result as JSON in the last line.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.gpu_programs import call_until_chosen, say
from benchmarks.gpu_turns import alone, environment_of_part

_CACHES = ("TREMULA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Of the first process, whose caches are empty, and of the next.
_BARS = {"first": "<= 10", "second": "<= 3"}


@dataclass(frozen=True)
class Start:
    """What happened in a process that starts a model."""

    first_call_s: float
    full_speed_s: float  # since the first call began
    n_calls: int
    chosen: str  # the backend, and why


def start_figures(name: str) -> Iterator[Figure]:
    """Two processes one after the other: with empty caches, and with what the first has stored."""
    with alone(), tempfile.TemporaryDirectory() as folder:
        caches = {variable: str(Path(folder, variable)) for variable in _CACHES}
        for which, bar in _BARS.items():
            start = _in_new_process(name, caches)
            note = f"first call {start.first_call_s:.2f} s, {start.n_calls} calls; {start.chosen}"
            yield Figure.of(f"gpu-start-{name}-{which}", start.full_speed_s, "s", bar, note)


def _in_new_process(name: str, caches: dict[str, str]) -> Start:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.poptorch.start", name],
        env=environment_of_part() | caches,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *lines, result = done.stdout.strip().splitlines()
    for line in lines:
        say(line)
    return Start(**json.loads(result))


def measure(name: str) -> Start:
    """Call a model from its first call until it runs at full speed."""
    import torch

    import poptorch
    from benchmarks.gpu_programs import bench_device
    from benchmarks.poptorch.models import case_named
    from tremula.ir.settings import configured

    case = case_named(name)
    torch.manual_seed(0)
    model, batch = case.make(), case.batch(case.n_batch)
    n_calls = 0

    def call() -> None:
        nonlocal n_calls
        training(*batch)
        n_calls += 1

    with configured(host="auto", device=bench_device()):
        training = poptorch.trainingModel(
            model, poptorch.Options(), case.optimizer(model.parameters())
        )
        began = time.perf_counter()
        call()
    first_call_s = time.perf_counter() - began
    chosen = call_until_chosen(training, call, pause_s=0)
    return Start(first_call_s, time.perf_counter() - began, n_calls, chosen)


def main() -> None:
    """Print the log of a start, and its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    name = parser.parse_args().name
    import torch

    import tremula

    tremula.install()
    logging.basicConfig(
        stream=sys.stdout, format="%(relativeCreated)8.0f ms  %(message)s", level=logging.WARNING
    )
    logging.getLogger("tremula.gpu").setLevel(logging.INFO)
    torch.set_float32_matmul_precision("high")
    print(json.dumps(asdict(measure(name))), flush=True)


if __name__ == "__main__":
    main()
