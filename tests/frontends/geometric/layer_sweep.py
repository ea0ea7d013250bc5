"""Trains every layer of the table by plain PyG, on the host and on tiles; makes docs/pyg.md."""

import argparse
import copy
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

import poptorch
import poptorch_geometric as _  # noqa: F401 — replaces what of PyG is dynamic
from tests.frontends.geometric.layer_table import CASES, Case, Trained
from tremula.ir.settings import configured

N_STEPS, LEARNING_RATE = 2, 0.05
RTOL, ATOL = 2e-4, 2e-5
ROOMS = {
    "conv": "Convolutions",
    "aggr": "Aggregations",
    "norm": "Normalisations",
    "pool": "Pooling",
    "dense": "Dense",
}
FINE = "yes"
SIDES = ("host", "tiles")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a layer: "yes", or why not, on the host and on tiles."""

    name: str
    host: str
    tiles: str


def check_layer(case: Case, *, on_tiles: bool) -> None:
    """Train a layer by PyG and by us; raises if outputs, losses or weights differ."""
    torch.manual_seed(0)
    model = Trained(case).train()
    plain = copy.deepcopy(model)
    inputs = case.tensors()
    optimizer = torch.optim.SGD(plain.parameters(), lr=LEARNING_RATE)
    ours = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    options = poptorch.Options()
    with configured(tiles="run" if on_tiles else "lazy", device="cpu"):
        training = poptorch.trainingModel(model, options, ours)
        for step in range(N_STEPS):
            out, loss = training(*inputs)
            optimizer.zero_grad()
            expected, expected_loss = plain(*inputs)
            expected_loss.backward()
            optimizer.step()
            _compare(out, expected.detach(), f"outputs of step {step}")
            _compare(loss, expected_loss.detach(), f"loss of step {step}")
        training.copyWeightsToHost()
        training.destroy()
    after = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        _compare(after[name].detach(), parameter.detach(), f"parameter {name}")


def _compare(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=RTOL, atol=ATOL, msg=lambda text: f"{what} differ: {text}"
    )


def swept(case: Case) -> Row:
    """The row of a layer."""
    if case.make is None:
        return Row(case.name, case.why_not, case.why_not)
    return Row(case.name, _outcome(case, on_tiles=False), _outcome(case, on_tiles=True))


def _outcome(case: Case, *, on_tiles: bool) -> str:
    try:
        check_layer(case, on_tiles=on_tiles)
    except Exception as error:  # noqa: BLE001 — every refusal is a row of the page
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"no: {lines[0] if lines else type(error).__name__}"[:160]
    return FINE


def sweep(cases: Iterable[Case], n_processes: int) -> Iterator[Row]:
    """Rows of many layers, in order, by several processes."""
    names = [(case.room, case.name) for case in cases]
    with ProcessPoolExecutor(n_processes, get_context("forkserver")) as pool:
        yield from pool.map(_swept_by_name, names)


def _swept_by_name(place: tuple[str, str]) -> Row:
    torch.set_num_threads(1)
    return swept(next(case for case in CASES if (case.room, case.name) == place))


# -- the page --------------------------------------------------------------------------------------

HEAD = """# Layers of PyTorch Geometric

Every convolution, aggregation, normalisation and pooling of `torch_geometric.nn`, trained for some
steps by plain PyG, by the compiled model on the host and by the tile program. "yes" means that
outputs, losses and weights agree. *Static* says which arguments keep shapes constant;
`add_self_loops=False` goes with the transform `AddSelfLoops` on the data
([why](pyg-porting.md#what-else-is-dynamic)).

The page is made by `python -m tests.frontends.geometric.layer_sweep --page docs/pyg.md`.
"""


def page(rows: Iterable[Row]) -> str:
    """The page of all layers."""
    by_name = {row.name: row for row in rows}
    n_host, n_tiles = (sum(getattr(r, side) == FINE for r in by_name.values()) for side in SIDES)
    texts = [HEAD, f"\n{n_host} of {len(by_name)} layers train on the host, {n_tiles} on tiles.\n"]
    for room, title in ROOMS.items():
        texts.append(f"\n## {title}\n\n| layer | static | host | tiles | why not |\n")
        texts.append("|---|---|---|---|---|\n")
        result = [case for case in CASES if case.room == room and case.name in by_name]
        texts += [_line(case, by_name[case.name]) for case in result]
    return "".join(texts)


def _line(case: Case, row: Row) -> str:
    marks = [FINE if getattr(row, side) == FINE else "no" for side in SIDES]
    reasons = {r.removeprefix("no: ") for r in (row.host, row.tiles) if r != FINE}
    why = "; ".join(sorted(reasons)).replace("|", "\\|")
    options = f"`{case.options}`" if case.options else ""
    return f"| `{case.name}` | {options} | {marks[0]} | {marks[1]} | {why} |\n"


def main() -> None:
    """Sweep, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="file to write")
    parser.add_argument("--only", nargs="*", help="names of layers")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    cases = [case for case in CASES if not args.only or case.name in args.only]
    rows = []
    for row in sweep(cases, args.processes):
        print(f"{row.name:<32} host {row.host:<60.160} tiles {row.tiles:.160}", flush=True)
        rows.append(row)
    if args.page:
        args.page.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
