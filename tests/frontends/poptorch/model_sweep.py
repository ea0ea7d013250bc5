"""One training step of many models, on the host and on tiles, compared with plain PyTorch.

The models are classes of transformers in tiny configurations and architectures of vision, all with
random weights and nothing dropped (`tremula.garden`):

    python -m tests.frontends.poptorch.model_sweep --page docs/models.md       # all of them
    python -m tests.frontends.poptorch.model_sweep BertForMaskedLM "ResNet-18"  # a few, printed
"""

import argparse
import copy
import json
import math
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn

import poptorch
from tremula.base.errors import PoplarError
from tremula.base.storage.atomic_file import atomic_file
from tremula.frontends.poptorch.executor import placement
from tremula.garden.models.vision_zoo import MODELS as VISION
from tremula.garden.models.vision_zoo import tiny_vision_model

HOST, TILES = "host", "tiles"
PASS, WRONG, REFUSED, ERROR = "pass", "wrong values", "refused", "error"
TIME_LIMIT_S = 300  # for one model on one execution
N_TILES = 16  # a tiny model needs no more, and compiles faster for few
LEARNING_RATE = 0.1
# Of the loss, and of each parameter's update against its largest element. A tile has other
# polynomials and other orders of summation than PyTorch.
TOLERANCE = {HOST: 1e-4, TILES: 2e-3}
# Updates this much smaller than the model's largest are rounding: a bias before a normalisation.
NEGLIGIBLE = 1e-4

Model = tuple[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Outcome:
    """How one execution did with a model."""

    outcome: str
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    """One model, by execution."""

    name: str
    n_parameters: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)


def all_models() -> list[str]:
    """The names of all models: classes of transformers, then architectures of vision."""
    from tremula.garden.models.tiny_transformers import (
        CLASSES,
    )  # loads transformers, which takes seconds

    return [*CLASSES, *VISION]


def make(name: str) -> Model:
    """The model of this name, which returns its loss, and a batch for it."""
    if name in VISION:
        return tiny_vision_model(name)
    from tremula.garden.models.tiny_transformers import tiny_model  # loads transformers

    tiny = tiny_model(name)
    return tiny.model, tiny.batch


# -- one step --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What a training step did: its loss, and by how much each parameter changed."""

    loss: float
    updates: dict[str, Tensor]


def plain_step(model: nn.Module, batch: tuple[Tensor, ...]) -> Step:
    """The step of a script without PopTorch."""
    before = _parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss = model(*batch)
    loss.backward()
    optimizer.step()
    return Step(float(loss.detach()), _updates(model, before))


def our_step(execution: str, model: nn.Module, batch: tuple[Tensor, ...]) -> Step:
    """A step of the model by PopTorch."""
    before = _parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    options = poptorch.Options().useIpuModel(execution == TILES)
    small = {"POPTORCH_SMALL_IPU_MODEL": "1"} if execution == TILES else {}
    n_tiles = mock.patch.object(placement, "TILES_OF_SMALL_MODEL", N_TILES)
    with mock.patch.dict(os.environ, small), n_tiles:
        training = poptorch.trainingModel(model, options, optimizer)
        try:
            loss = training(*batch)
            training.copyWeightsToHost()
        finally:
            training.destroy()
    return Step(float(loss), _updates(model, before))


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _updates(model: nn.Module, before: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: (p.detach() - before[name]).double() for name, p in model.named_parameters()}


def noise_of(model: nn.Module, batch: tuple[Tensor, ...], plain: Step) -> dict[str, float]:
    """By parameter, how far PyTorch's own float32 update is from the same step in float64.

    A batch norm over two elements, say, has no better gradient to compare with. Nothing for models
    that cannot compute in float64.
    """
    wide = tuple(t.double() if t.is_floating_point() else t for t in batch)
    try:
        exact = plain_step(copy.deepcopy(model).double(), wide)
    except RuntimeError:
        return {}
    return {name: _largest(u - exact.updates[name]) for name, u in plain.updates.items()}


def difference(
    ours: Step, plain: Step, tolerance: float, noise: Mapping[str, float] | None = None
) -> str:
    """What is different, in a line; empty if nothing is. Four times the noise is none."""
    if not abs(ours.loss - plain.loss) <= tolerance * max(1.0, abs(plain.loss)):
        return f"loss {ours.loss:.6g}, expected {plain.loss:.6g}"
    largest = max(_largest(update) for update in plain.updates.values())
    worst, where = tolerance, ""
    for name, right in plain.updates.items():
        scale = max(_largest(right), NEGLIGIBLE * largest, 1e-12)
        allowed = 4 * (noise or {}).get(name, 0.0) / scale
        error = _largest(ours.updates[name] - right) / scale
        if math.isnan(error):
            return f"the update of {name} is NaN"
        if error > max(worst, allowed):
            worst, where = error, name
    return f"the update of {where} is off by {worst:.2g} of its largest element" if where else ""


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def check(name: str, executions: Iterable[str] = (HOST, TILES)) -> Row:
    """Run one model."""
    model, batch = make(name)
    row = Row(name, sum(p.numel() for p in model.parameters()))
    plain = plain_step(copy.deepcopy(model), batch)
    noise = noise_of(model, batch, plain)
    for execution in executions:
        began = time.perf_counter()
        try:
            with _time_limit():
                step = our_step(execution, copy.deepcopy(model), batch)
        except Exception as error:  # noqa: BLE001 - a row of the table
            kind, reason = _blamed(error)
        else:
            reason = difference(step, plain, TOLERANCE[execution], noise)
            kind = WRONG if reason else PASS
        row.outcomes[execution] = Outcome(kind, reason, round(time.perf_counter() - began, 1))
    return row


def _blamed(error: Exception) -> tuple[str, str]:
    is_refusal = isinstance(error, PoplarError | NotImplementedError | poptorch.Error)
    text = " ".join((error.what if isinstance(error, PoplarError) else str(error)).split())
    if "Unsupported ops found" in text:
        text = "no lowering: " + text.partition("[")[2].partition("]")[0]
    kind = REFUSED if is_refusal else ERROR
    return kind, f"{'' if is_refusal else type(error).__name__ + ': '}{text}"[:200]


class _OutOfTime(Exception):
    """A model took longer than it may."""


class _time_limit:
    """Raises in the main thread when TIME_LIMIT_S are over."""

    def __enter__(self) -> None:
        self._previous = signal.signal(signal.SIGALRM, self._stop)
        signal.alarm(TIME_LIMIT_S)

    def __exit__(self, *_raised: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self._previous)

    @staticmethod
    def _stop(*_args: object) -> None:
        raise _OutOfTime(f"more than {TIME_LIMIT_S} s")


# -- many ------------------------------------------------------------------------------------------


def _check_alone(name: str, executions: tuple[str, ...]) -> Row:
    """As `check`, in a process of a pool; whatever happens there is a row."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    poptorch.setLogLevel("ERR")
    try:
        return check(name, executions)
    except Exception as error:  # noqa: BLE001 - a row of the table
        return Row(name, outcomes=dict.fromkeys(executions, Outcome(*_blamed(error))))


def sweep(
    names: Iterable[str] | None = None,
    n_processes: int | None = None,
    executions: tuple[str, ...] = (HOST, TILES),
) -> Iterator[Row]:
    """Rows as they come, from several processes."""
    waiting = list(names or all_models())
    n_processes = n_processes or os.cpu_count() or 1
    if n_processes == 1:
        yield from (_check_alone(name, executions) for name in waiting)
        return
    while waiting:  # a process that dies takes its pool along: the rest goes to another
        done: set[str] = set()
        with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
            jobs = {pool.submit(_check_alone, name, executions): name for name in waiting}
            try:
                for job in as_completed(jobs):
                    row = job.result()
                    done.add(row.name)
                    yield row
            except BrokenProcessPool:
                dead = next(name for name in waiting if name not in done)
                done.add(dead)
                died = Outcome(ERROR, "the process died")
                yield Row(dead, outcomes=dict.fromkeys(executions, died))
        waiting = [name for name in waiting if name not in done]


# -- figures and the page --------------------------------------------------------------------------


def percent(rows: Iterable[Row], execution: str) -> float:
    """How many of a hundred models pass."""
    own = [row.outcomes[execution].outcome == PASS for row in rows if execution in row.outcomes]
    return 100 * sum(own) / max(1, len(own))


_HEAD = """# Models

One training step (SGD, the model's own loss) of {n} models with random weights in tiny
configurations, nothing dropped: {n_transformers} classes of transformers and {n_vision}
architectures of vision as torchvision and timm have them. The loss and every updated weight are
compared with the same step in plain PyTorch, to {host:g} on the host and {tiles:g} on tiles (of the
largest element of each update), or to four times what PyTorch itself is off in float32 where that
is more. Models that look at values of tensors to choose a branch or a shape are refused, as they
are by every compiler of static programs. An empty cell was not run when the page was made.

The page is made by `python -m tests.frontends.poptorch.model_sweep --page docs/models.md`, the
figures by `tremula bench poptorch --only models`.

| execution | pass | of | |
|---|---:|---:|---:|
"""


def page(rows: Iterable[Row]) -> str:
    """The page docs/models.md."""
    rows = sorted(rows, key=lambda row: (row.name in VISION, row.name.lower()))
    n_vision = sum(row.name in VISION for row in rows)
    text = _HEAD.format(
        n=len(rows),
        n_transformers=len(rows) - n_vision,
        n_vision=n_vision,
        host=TOLERANCE[HOST],
        tiles=TOLERANCE[TILES],
    )
    for execution in (HOST, TILES):
        tried = [row.outcomes[execution] for row in rows if execution in row.outcomes]
        count = Counter(result.outcome for result in tried)
        share = percent(rows, execution)
        text += f"| {execution} | {count[PASS]} | {count.total()} | {share:.1f} % |\n"
    text += "\n## What does not pass\n\n| model | where | outcome |\n|---|---|---|\n"
    text += "".join(f"{line}\n" for row in rows for line in failures(row))
    text += "\n## All models\n\n| model | parameters | host | tiles |\n|---|---:|---|---|\n"
    for row in rows:
        shown = [row.outcomes[e].outcome if e in row.outcomes else "" for e in (HOST, TILES)]
        text += f"| `{row.name}` | {row.n_parameters} | {shown[0]} | {shown[1]} |\n"
    return text


def failures(row: Row) -> list[str]:
    """A line of the page for each execution on which a model does not pass."""
    return [
        f"| `{row.name}` | {execution} | {o.outcome}: {_cell(o.reason)} |"
        for execution, o in row.outcomes.items()
        if o.outcome != PASS
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "")


def failing(text: str) -> set[str]:
    """The models that a page lists as not passing somewhere."""
    section = text.partition("## What does not pass")[2].partition("##")[0]
    return {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="models; all of them if none is named")
    parser.add_argument("--only", choices=(HOST, TILES), help="one execution")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--page", type=Path, help="write the page here")
    parser.add_argument("--processes", type=int, help="as many as there are cores")
    args = parser.parse_args(arguments)
    executions = (args.only,) if args.only else (HOST, TILES)
    rows = []
    for row in sweep(args.names, args.processes, executions):
        rows.append(row)
        seconds = ", ".join(f"{e} {o.seconds} s" for e, o in row.outcomes.items())
        print("\n".join(failures(row)) or f"{row.name}: {PASS}, {seconds}", flush=True)
        if args.json is not None:
            with atomic_file(args.json) as file:
                file.write(json.dumps([asdict(row) for row in rows], indent=1).encode())
    for execution in executions:
        print(f"{execution}: {percent(rows, execution):.1f} % of {len(rows)}")
    if args.page is not None:
        with atomic_file(args.page) as file:
            file.write(page(rows).encode())


if __name__ == "__main__":
    main()
