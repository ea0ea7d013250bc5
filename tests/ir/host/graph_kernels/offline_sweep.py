"""Every kernel of layers of PyG, compiled for kinds of GPUs that need not be there; needs Triton.

    python -m tests.ir.host.graph_kernels.offline_sweep --results build/kernels.jsonl --seconds 3600

compiles what the results lack, case by case in a random order, each text once for all cases that
have it. A case is a layer, a width and a type.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from tests.ir.host.graph_kernels.layers import step_of
from tremula.ir.host.graph_kernels import kernels
from tremula.ir.host.graph_kernels.compile_ahead import Answer, KernelRequest, compile_ahead
from tremula.ir.host.graph_kernels.fuse import fuse_graph_kernels
from tremula.ir.host.graph_kernels.regions import FEATURE_MAJOR, TF32
from tremula.ir.step import CapturedStep

AMPERE, HOPPER, BLACKWELL = 80, 90, 100
WIDTHS = 32, 64, 128, 200
TYPES = torch.float32, torch.bfloat16, torch.float16
# Why a candidate may not compile, if another one does: products need more registers than a program
# of that many threads has.
TOO_LARGE = "shared memory", "Insufficient registers"
SHARED_BYTES = {AMPERE: 163 << 10, HOPPER: 227 << 10, BLACKWELL: 227 << 10}  # of a program
N_NODES, N_EDGES = 600, 20_000  # enough for all forms of kernels

Layer = Callable[[int], nn.Module]
LAYERS: dict[str, Layer] = {
    "GCNConv": lambda n: pyg.GCNConv(n, n, add_self_loops=False),
    "SAGEConv": lambda n: pyg.SAGEConv(n, n),
    "SAGEConv-max": lambda n: pyg.SAGEConv(n, n, aggr="max"),
    "GATConv": lambda n: pyg.GATConv(n, n // 4, heads=4, add_self_loops=False),
    "GATv2Conv": lambda n: pyg.GATv2Conv(n, n // 4, heads=4, add_self_loops=False),
    "GINConv": lambda n: pyg.GINConv(_network(n)),
    "GINEConv": lambda n: pyg.GINEConv(_network(n)),
    "CGConv": lambda n: pyg.CGConv(n, n),
    "TransformerConv": lambda n: pyg.TransformerConv(n, n // 4, heads=4, edge_dim=n),
    "EdgeConv": lambda n: pyg.EdgeConv(nn.Sequential(nn.Linear(2 * n, n), nn.SiLU())),
    "ResGatedGraphConv": lambda n: pyg.ResGatedGraphConv(n, n),
    "GraphConv": lambda n: pyg.GraphConv(n, n),
    "GENConv": lambda n: pyg.GENConv(n, n),
    "FiLMConv": lambda n: pyg.FiLMConv(n, n),
    "LEConv": lambda n: pyg.LEConv(n, n),
    "TAGConv": lambda n: pyg.TAGConv(n, n, normalize=False),
    "ARMAConv": lambda n: pyg.ARMAConv(n, n),
}
_TAKES_EDGES = {"GINEConv", "CGConv", "TransformerConv"}


def _network(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n))


class TwoLayers(nn.Module):
    """A layer twice, with a loss, so that gradients of features are computed as well."""

    def __init__(self, name: str, width: int):
        super().__init__()
        self.takes_edges = name in _TAKES_EDGES
        self.layers = nn.ModuleList(LAYERS[name](width) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        more = (edge_attr,) if self.takes_edges else ()
        for layer in self.layers:
            x = layer(x, edge_index, *more)
        return nn.functional.mse_loss(x.float(), torch.zeros_like(x, dtype=torch.float32))


@dataclass(frozen=True)
class Failure:
    """A candidate that does not compile, or is too large."""

    kernel: int  # of those that were compiled together
    capability: int
    form: str
    reason: str


def step_of_layer(name: str, width: int, dtype: torch.dtype) -> CapturedStep:
    """A training step of two layers."""
    torch.manual_seed(0)
    model = TwoLayers(name, width).to(dtype)
    x, attributes = torch.randn(N_NODES, width), torch.randn(N_EDGES, width)
    edges = torch.randint(N_NODES, (2, N_EDGES))
    return step_of(model, (x.to(dtype), edges, attributes.to(dtype)))


def fused_kernels(capture: Callable[[], CapturedStep]) -> list[kernels.RowKernel]:
    """The kernels of a step with products in TF32, with and without large outer products."""
    digests: dict[str, None] = {}
    for limits in (TF32, FEATURE_MAJOR):
        fused = fuse_graph_kernels(capture(), torch.device("cpu"), limits)
        calls = [n for n in fused.graph.nodes if n.target is torch.ops.tremula.row_kernel.default]
        digests |= dict.fromkeys(str(call.args[0]) for call in calls)
    return [kernels._kernels[digest] for digest in digests]


def failures(
    each: Sequence[kernels.RowKernel], capabilities: Sequence[int], n_processes: int
) -> Iterator[Failure]:
    """Compile every candidate of kernels at once; those that a GPU could not run."""
    jobs = list(candidates(each, capabilities))
    answers = compile_ahead([job.request for job in jobs], n_processes)
    for job, future in zip(jobs, answers, strict=True):
        if reason := why_not(future.result(), job.request.capability):
            yield Failure(job.kernel, job.request.capability, job.form, reason)


@dataclass(frozen=True)
class Candidate:
    """A way to launch a kernel on a kind of GPU."""

    kernel: int  # of those that are compiled together
    form: str
    request: KernelRequest

    @property
    def key(self) -> str:
        """Equal for equal texts, whatever kernel they are of."""
        request = self.request
        return repr((Path(request.path).name, request.types, request.choices, request.capability))


def candidates(
    each: Sequence[kernels.RowKernel], capabilities: Sequence[int]
) -> Iterator[Candidate]:
    for number, kernel in enumerate(each):
        for capability in capabilities:
            for launch in kernels.candidates_of(kernel, capability == HOPPER):
                request = kernels.request_for(kernel, launch, capability)
                yield Candidate(number, launch.form, request)


def is_too_large(reason: str) -> bool:
    """Whether a GPU could not run a candidate for its size alone."""
    return any(what in reason for what in TOO_LARGE)


def why_not(answer: Answer, capability: int) -> str:
    """Why a GPU could not run what was compiled; empty if it could."""
    if "error" in answer or not answer:
        return str(answer.get("error", "no answer"))
    if int(str(answer["shared"])) > SHARED_BYTES[capability]:
        return f"{answer['shared']} bytes of shared memory"
    return ""


# -- all cases, over several runs ------------------------------------------------------------------


def read_results(path: Path) -> dict[str, str]:
    """What earlier runs compiled, by key: why a GPU could not run it, or ""."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines if line.endswith("]"))  # the last may be cut off


def compile_case(jobs: Sequence[Candidate], results: dict[str, str], path: Path) -> None:
    """Compile what is not known, and append it to the results."""
    missing = {job.key: job.request for job in jobs if job.key not in results}
    answers = compile_ahead(list(missing.values()))
    with path.open("a", encoding="utf-8") as file:
        for (key, request), future in zip(missing.items(), answers, strict=True):
            results[key] = why_not(future.result(), request.capability)
            file.write(json.dumps([key, results[key]]) + "\n")


def is_fine(jobs: Sequence[Candidate], results: dict[str, str]) -> bool:
    """Candidates compile or are too large, and of each kernel some fit on each GPU."""
    compiles = all(not results[job.key] or is_too_large(results[job.key]) for job in jobs)
    wanted = {(job.kernel, job.request.capability) for job in jobs}
    return compiles and wanted == {
        (job.kernel, job.request.capability) for job in jobs if not results[job.key]
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="a file that is added to")
    parser.add_argument("--seconds", type=float, default=3600, help="start no case after this time")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    results, began, n_failed = read_results(args.results), time.monotonic(), 0
    cases = list(itertools.product(LAYERS, WIDTHS, TYPES))
    random.Random(0).shuffle(cases)
    for number, (layer, width, dtype) in enumerate(cases, 1):
        if time.monotonic() - began > args.seconds:
            break
        each = fused_kernels(lambda of=(layer, width, dtype): step_of_layer(*of))
        jobs = list(candidates(each, (AMPERE, HOPPER, BLACKWELL)))
        compile_case(jobs, results, args.results)
        fine = is_fine(jobs, results)
        n_failed += not fine
        n_large = sum(is_too_large(results[job.key]) for job in jobs)
        print(
            f"{number:4}/{len(cases)} {layer} {width} {dtype}: {len(each)} kernels, {len(jobs)} "
            f"candidates, {n_large} too large; {'fine' if fine else 'FAILED'}; "
            f"{len(results)} texts so far",
            flush=True,
        )
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
