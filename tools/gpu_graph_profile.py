"""The kernels of a graph network's training step on a GPU, by time, and the ATen operations left.

    python tools/gpu_graph_profile.py painn-forces 32 [--host inductor-cuda-graph] [--top 25]

A name is one of the models of `benchmarks/geometric/programs.py`; the number is molecules a step.
"""

import argparse
import time

import torch

import tremula
from tools.gpu_profile import median_ms, print_kernels
from tremula.ir.settings import configured


def measure(name: str, n_molecules: int, host: str, n_rows: int) -> None:
    """Print the time of a step, of a call of 16 steps, and the kernels."""
    from benchmarks.geometric import programs

    model = (programs.MODELS | programs.WITH_FORCES)[name]
    columns = model.molecules(max(4000, 32 * n_molecules))
    sizes = programs.sizes_for(columns, n_molecules)
    batch = next(iter(programs.packed_loader(columns, sizes, 16)))
    inputs = programs.arguments(batch, model.fields)
    training = programs.our_training(model.make(sizes.num_graphs), 16)
    began = time.perf_counter()
    with configured(host=host, device="cuda"):
        training(*inputs)
    first_s = time.perf_counter() - began
    step_ms = median_ms(lambda: training(*inputs), 10) / 16
    print(f"{name} {n_molecules} ({host}): {step_ms:.3f} ms a step, first call {first_s:.1f} s")
    print_kernels(lambda: training(*inputs), n_rows)
    one = programs.packed_loader(columns, sizes, 1)
    padded = programs.arguments(next(iter(one)), model.fields)
    eager = programs.PlainStep.of(model.make(sizes.num_graphs), "cuda")
    eager_ms = median_ms(lambda: eager(padded), 10)
    print(f"  eager {eager_ms:.3f} ms on the same padded batch: {eager_ms / step_ms:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("n_molecules", type=int)
    parser.add_argument("--host", default="cuda-graph")
    parser.add_argument("--top", type=int, default=25)
    arguments = parser.parse_args()
    tremula.install()
    torch.set_float32_matmul_precision("high")
    measure(arguments.name, arguments.n_molecules, arguments.host, arguments.top)


if __name__ == "__main__":
    main()
