"""Seconds from a script's first call to full speed with `auto`, in this process.

    python tools/gpu_start.py gpt2-small-bf16
    python tools/gpu_start.py gpt2-small-bf16        # again: with what the first one has cached

A name is one of `tools/gpu_profile.py`.
"""

import argparse
import logging
import time

import torch

import tremula
from tools.gpu_profile import case_of, median_ms
from tremula.ir.host.programs import fastest
from tremula.ir.settings import configured


def measure(name: str) -> None:
    """Print when the first call began and ended, and when the program was chosen."""
    import poptorch

    case = case_of(name)
    torch.manual_seed(0)
    model, batch = case.make(), case.batch(case.n_batch)
    with configured(host="auto", device="cuda"):
        optimizer = case.optimizer(model.parameters())
        training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
        began = time.perf_counter()
        training(*batch)
    first_s = time.perf_counter() - began
    program = training.compiled_program().session.program
    assert isinstance(program, fastest.FastestProgram), "with host='auto'"
    n_calls = 1
    while not program.backend:
        training(*batch)
        n_calls += 1
    chosen_s = time.perf_counter() - began
    step_ms = median_ms(lambda: training(*batch))
    print(
        f"{name}: first call {first_s:.1f} s, at full speed after {chosen_s:.1f} s and {n_calls}"
        f" calls ({program.backend}, {step_ms:.2f} ms a step)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    tremula.install()
    logging.basicConfig()
    logging.getLogger("tremula.gpu").setLevel(logging.INFO)
    torch.set_float32_matmul_precision("high")
    for name in parser.parse_args().names:
        measure(name)


if __name__ == "__main__":
    main()
