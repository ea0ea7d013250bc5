"""PyTorch's own database of operators, run by both executions and compared with PyTorch.

`op_db` (torch.testing) lists about 700 operators with samples of their arguments. All samples of an
operator, ten at most, become one function; it is recorded once, and its results and the gradients
of their weighted sum come from the host and from tiles:

    python -m tests.frontends.poptorch.op_db --page docs/op-db.md      # all of them
    python -m tests.frontends.poptorch.op_db add nn.functional.unfold  # a few, printed
"""

import argparse
import contextlib
import itertools
import os
import signal
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.frontends.poptorch.op_db_rows import (
    ERROR,
    HOST,
    N_SAMPLES,
    PASS,
    REFUSED,
    TILES,
    TOLERANCE,
    WRONG,
    Outcome,
    Row,
    counts,
    failures,
    page,
    read_rows,
    write_rows,
)
from tremula.base.errors import InvalidOption, PoplarError, suggest
from tremula.base.storage.atomic_file import atomic_file
from tremula.ir.host.programs.program import DeviceState, HostProgram
from tremula.ir.run.tile_run import record_function, run_step_on_tiles
from tremula.ir.step import CapturedStep

TIME_LIMIT_S = 240  # for one operator
# Where float32 is less exact than that, a tile may be off the exact value by PyTorch's own error
# times this.
OFF_LIKE_PYTORCH = 4
MOST_ROUNDING = 1e-3  # of the largest value: what PyTorch is off by more is not rounding


# -- operators and samples -------------------------------------------------------------------------


@cache
def operators() -> dict[str, Any]:
    """Every operator of the database that takes float32, by name and variant."""
    if "expecttest" not in sys.modules:  # only PyTorch's own tests need it
        with contextlib.suppress(ImportError):
            import expecttest  # noqa: F401  # pyright: ignore[reportMissingImports]
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # pyright: ignore[reportAttributeAccessIssue]
        sys.modules["expecttest"] = stand_in
    # Loading it takes seconds, so only who asks for operators waits for it.
    from torch.testing._internal.common_methods_invocations import op_db

    return {_name(op): op for op in op_db if torch.float32 in op.dtypes}


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@dataclass
class Sample:
    """One call: a function of its tensors, which gives a flat list of tensors."""

    call: Callable[..., Any]
    tensors: list[Tensor]
    is_trained: list[bool]  # which tensors get a gradient
    spec: Any
    leaves: list[Any]
    freed: Callable[[Any], Any]  # from results without what PyTorch leaves open, such as signs

    @classmethod
    def of(cls, op: Any, sample: Any) -> "Sample":
        leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        trained = [t.requires_grad for t in tensors]
        tensors = [t.detach() for t in tensors]
        return cls(op.op, tensors, trained, spec, leaves, sample.output_process_fn_grad)

    def result(self, *tensors: Tensor) -> Any:
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        first, args, kwargs = tree_unflatten(leaves, self.spec)
        return self.call(first, *args, **kwargs)

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        return flat_tensors(self.result(*tensors))

    def with_gradients(self, *tensors: Tensor) -> list[Tensor]:
        """The gradients of a weighted sum of all results, so that no two places count alike."""
        pairs = zip(tensors, self.is_trained, strict=True)
        tensors = tuple(t.detach().requires_grad_() if trained else t for t, trained in pairs)
        leaves = [t for t, trained in zip(tensors, self.is_trained, strict=True) if trained]
        with torch.enable_grad():
            results = flat_tensors(self.freed(self.result(*tensors)))
            results = [r for r in results if r.requires_grad]
            if not results:
                return []
            weights = [_weights(r) for r in results]
            result = torch.autograd.grad(results, leaves, weights, allow_unused=True)
        return [g for g in result if g is not None]

    @property
    def has_gradients(self) -> bool:
        return any(self.is_trained)


def _weights(result: Tensor) -> Tensor:
    shape = tuple(result.shape)
    return torch.cos(torch.arange(result.numel(), dtype=torch.float32)).reshape(shape).to(result)


def flat_tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def sample_inputs(op: Any, dtype: torch.dtype, *, trained: bool) -> Iterator[Any]:
    """PyTorch's samples. It does not look for the method of a `TestCase` that asks for them.

    To describe the stack of calls, Python looks through all modules, for each of them.
    """
    torch.manual_seed(0)
    internal = "torch.testing._internal"
    with (
        mock.patch(f"{internal}.common_utils.extract_test_fn", return_value=None),
        mock.patch(f"{internal}.opinfo.core.extract_test_fn", return_value=None),
    ):
        return op.sample_inputs("cpu", dtype, requires_grad=trained)


def samples_of(op: Any, *, trained: bool) -> list[Sample]:
    result = sample_inputs(op, torch.float32, trained=trained)
    return [Sample.of(op, sample) for sample in itertools.islice(result, N_SAMPLES)]


# -- which are counted -----------------------------------------------------------------------------


def why_not_counted(sample: Sample, wanted: object) -> str:
    """Why a sample is no static program of float32 tensors; empty if it is one."""
    leaves = tree_flatten(wanted)[0]
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        return "its result is no tensor"
    if any(t.layout is not torch.strided for t in (*sample.tensors, *leaves)):
        return "sparse tensors"
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        try:
            sample.forward(*[fakes.from_tensor(t) for t in sample.tensors])
        except DynamicOutputShapeException:
            return "the shape of its result depends on values"
        except Exception:  # noqa: BLE001 - the executions will say what
            return ""
    return ""


def _is_random(name: str, sample: Sample) -> bool:
    """Whether seeds make a difference, or the values of the result are not defined."""
    if "empty" in name:
        return True
    result = []
    for seed in range(4):
        torch.manual_seed(seed)
        with mock.patch.object(torch, "manual_seed"):  # the operator may set its own
            result.append(sample.forward(*_copies(sample.tensors)))
    others = itertools.chain.from_iterable(result[1:])
    return any(_difference(a, b, 0, 0) for a, b in zip(result[0] * 3, others, strict=True))


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [t.clone() for t in tensors]


# -- running and comparing -------------------------------------------------------------------------


def run_on_host(step: CapturedStep, inputs: list[Tensor]) -> list[Tensor]:
    """The recorded function as the host runs a model."""
    program = HostProgram(step, device=torch.device("cpu"))
    with torch.no_grad():
        return program.run_micro(DeviceState([], [[]], [], [], []), 0, _copies(inputs))[0]


def _run(execution: str, step: CapturedStep, inputs: list[Tensor]) -> list[Tensor]:
    if execution == HOST:
        return run_on_host(step, inputs)
    return run_step_on_tiles(step, *inputs)


def _difference(got: Tensor, right: Tensor, relative: float, absolute: float) -> str:
    """What is different, in a line; empty if nothing is."""
    if got.shape != right.shape:
        return f"shape {list(got.shape)}, expected {list(right.shape)}"
    if got.dtype != right.dtype:
        return f"type {got.dtype}, expected {right.dtype}"
    try:
        torch.testing.assert_close(got, right, rtol=relative, atol=absolute, equal_nan=True)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line and "likely" not in line]
        return "; ".join(lines[1:3] or lines)
    return ""


@dataclass
class Comparison:
    """The samples of an operator with what PyTorch gives, forward or gradients."""

    samples: list[Sample]
    wanted: list[list[Tensor]]
    function: str  # of a sample: "forward" or "with_gradients"
    only_shapes: bool = False

    def all_outcomes(self) -> dict[str, Outcome]:
        """By execution. A function of all samples first; if that fails, each alone."""
        whole = self._attempt(self.samples, self.wanted, (HOST, TILES))
        for execution in [e for e, result in whole.items() if isinstance(result, Exception)]:
            if len(self.samples) > 1:
                parts = [
                    self._attempt([sample], [wanted], (execution,))[execution]
                    for sample, wanted in zip(self.samples, self.wanted, strict=True)
                ]
                errors = [p for p in parts if isinstance(p, Exception)]
                whole[execution] = errors + [d for p in parts if isinstance(p, list) for d in p]
        return {execution: self._outcome(result) for execution, result in whole.items()}

    def _attempt(
        self, samples: list[Sample], wanted: list[list[Tensor]], executions: tuple[str, ...]
    ) -> dict[str, Exception | list]:
        """By execution: an exception, or what is different in each sample ("" if nothing is)."""
        function, inputs = self._joined(samples)
        try:
            step = record_function(function, inputs)
        except Exception as error:  # noqa: BLE001 - a row of the table
            return dict.fromkeys(executions, error)
        result: dict[str, Exception | list] = {}
        for execution in executions:
            if self.only_shapes and execution == TILES:
                continue
            try:
                results = _run(execution, step, inputs)
            except Exception as error:  # noqa: BLE001 - a row of the table
                result[execution] = error
            else:
                result[execution] = self._differences(samples, wanted, results, execution)
        return result

    def _joined(self, samples: list[Sample]) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
        def function(*tensors: Tensor) -> list[Tensor]:
            left = iter(tensors)
            return [
                result
                for sample in samples
                for result in getattr(sample, self.function)(
                    *itertools.islice(left, len(sample.tensors))
                )
            ]

        return function, [t for sample in samples for t in _copies(sample.tensors)]

    def _differences(
        self,
        samples: list[Sample],
        wanted: list[list[Tensor]],
        results: list[Tensor],
        execution: str,
    ) -> list[str]:
        if len(results) != sum(map(len, wanted)):
            return [f"{len(results)} results, expected {sum(map(len, wanted))}"] * len(samples)
        left = iter(results)
        return [
            self._difference_of(sample, right, list(itertools.islice(left, len(right))), execution)
            for sample, right in zip(samples, wanted, strict=True)
        ]

    def _difference_of(
        self, sample: Sample, right: list[Tensor], got: list[Tensor], execution: str
    ) -> str:
        right = _copies(right)
        if execution == TILES:  # 64-bit types are 32-bit on the machine
            right = [
                b.to(a.dtype) if _is_narrowed(a, b) else b for a, b in zip(got, right, strict=True)
            ]
        if self.only_shapes:
            right, got = ([torch.zeros_like(t) for t in side] for side in (right, got))
        result = _first_difference(got, right, execution)
        if result and execution == TILES and self._is_as_close(sample, got, right):
            return ""
        if not result or self.function != "forward":
            return result
        with contextlib.suppress(Exception):
            spec = tree_flatten(sample.result(*_copies(sample.tensors)))[1]
            got, right = (
                flat_tensors(sample.freed(tree_unflatten(side, spec))) for side in (got, right)
            )
            return _first_difference(got, right, execution)
        return result

    def _is_as_close(self, sample: Sample, got: list[Tensor], right: list[Tensor]) -> bool:
        """Whether results are off the exact ones by no more than PyTorch's are, times four.

        PyTorch's own may be off by rounding alone.
        """
        try:
            exact = getattr(sample, self.function)(*map(_in_double, sample.tensors))
        except Exception:  # noqa: BLE001 - it has no float64
            return False
        trios = list(zip(got, right, exact, strict=True))
        if any(_largest(b - c) > MOST_ROUNDING * max(1.0, _largest(c)) for _, b, c in trios):
            return False
        return all(_largest(a - c) <= OFF_LIKE_PYTORCH * _largest(b - c) for a, b, c in trios)

    def _outcome(self, results: Exception | list) -> Outcome:
        n = len(self.samples)
        if isinstance(results, Exception):
            return Outcome(*_blamed(results), 0, n)
        passed = sum(not d for d in results if isinstance(d, str))
        for part in results:
            if isinstance(part, Exception):
                return Outcome(*_blamed(part), passed, n)
        wrong = next((d for d in results if d), None)
        return Outcome(PASS if wrong is None else WRONG, wrong or "", passed, n)


def _is_narrowed(got: Tensor, right: Tensor) -> bool:
    return (got.dtype, right.dtype) in {
        (torch.int32, torch.int64),
        (torch.float32, torch.float64),
        (torch.float32, torch.bfloat16),
        (torch.complex64, torch.complex128),
    }


def _in_double(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def _largest(difference: Tensor) -> float:
    """NaN if any is: then no comparison holds."""
    return float(difference.abs().amax()) if difference.numel() else 0.0


def _first_difference(got: list[Tensor], right: list[Tensor], execution: str) -> str:
    relative, absolute = TOLERANCE[execution]
    result = (_difference(a, b, relative, absolute) for a, b in zip(got, right, strict=True))
    return next((text for text in result if text), "")


def _blamed(error: Exception) -> tuple[str, str]:
    kind = REFUSED if isinstance(error, PoplarError | NotImplementedError) else ERROR
    text = " ".join((error.what if isinstance(error, PoplarError) else str(error)).split())
    if "Unsupported ops found" in text:
        text = "no lowering: " + text.partition("[")[2].partition("]")[0]
    return kind, f"{'' if kind == REFUSED else type(error).__name__ + ': '}{text}"[:160]


# -- one operator ----------------------------------------------------------------------------------


def check(name: str) -> Row:
    """Run one operator."""
    known = operators()
    if name not in known:
        raise InvalidOption(f"op_db has no operator {name!r}.", hint=suggest(name, known))
    op, row = known[name], Row(name)
    try:
        samples = samples_of(op, trained=False)
        results = [s.result(*_copies(s.tensors)) for s in samples]
    except Exception as error:  # noqa: BLE001 - PyTorch itself cannot run it here
        row.not_counted = f"PyTorch cannot run it here: {error}".splitlines()[0][:100]
        return row
    if not samples:
        row.not_counted = "it has no samples"
        return row
    reasons = [why_not_counted(s, r) for s, r in zip(samples, results, strict=True)]
    indices = [i for i, reason in enumerate(reasons) if not reason]
    if not indices:
        row.not_counted = reasons[0]
        return row
    row.is_random = any(_is_random(name, samples[i]) for i in indices)
    wanted = [flat_tensors(results[i]) for i in indices]
    samples = [samples[i] for i in indices]
    row.forward = Comparison(samples, wanted, "forward", row.is_random).all_outcomes()
    if op.supports_autograd and not row.is_random:
        trained = samples_of(op, trained=True)
        trained = [trained[i] for i in indices if i < len(trained) and trained[i].has_gradients]
        pairs = [(s, s.with_gradients(*_copies(s.tensors))) for s in trained]
        pairs = [(s, g) for s, g in pairs if g]
        if pairs:
            samples, wanted = map(list, zip(*pairs, strict=True))
            row.gradient = Comparison(samples, wanted, "with_gradients").all_outcomes()
    return row


class _OutOfTime(Exception):
    """An operator took longer than it may."""


def _check_in_time(name: str) -> Row:
    """As `check`, but whatever happens there is a row."""

    def stop(*_args: object) -> None:
        raise _OutOfTime(f"more than {TIME_LIMIT_S} s")

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIME_LIMIT_S)
    try:
        return check(name)
    except Exception as error:  # noqa: BLE001 - a row of the table
        failed = Outcome(*_blamed(error))
        both = {HOST: failed, TILES: failed}
        return Row(name, forward=both, gradient=both)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def sweep(names: Iterable[str] | None = None, n_processes: int | None = None) -> Iterator[Row]:
    """Rows as they come, from several processes."""
    waiting = list(names or operators())
    n_processes = n_processes or os.cpu_count() or 1
    if n_processes == 1:
        yield from map(_check_in_time, waiting)
        return
    while waiting:  # a process that dies takes its pool along: the rest goes to another
        started: list[str] = []
        with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
            jobs = {pool.submit(_check_in_time, name): name for name in waiting}
            try:
                for job in as_completed(jobs):
                    row = job.result()
                    started.append(row.name)
                    yield row
            except BrokenProcessPool:
                dead = next(n for n in waiting if n not in started)
                failed = Outcome(ERROR, "the process died")
                both = {HOST: failed, TILES: failed}
                yield Row(dead, forward=both, gradient=both)
                started.append(dead)
        done = set(started)
        waiting = [name for name in waiting if name not in done]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="operators; all of them if none is named")
    parser.add_argument("--json", type=Path, help="keep rows here; those of others stay")
    parser.add_argument("--page", type=Path, help="write the page of all rows here")
    parser.add_argument("--processes", type=int, help="as many as there are cores")
    args = parser.parse_args(arguments)
    rows = {} if args.json is None else read_rows(args.json)
    for row in sweep(args.names, args.processes):
        rows[row.name] = row
        print("\n".join(failures(row)) or f"{row.name}: {row.not_counted or PASS}", flush=True)
        if args.json is not None:
            write_rows(args.json, rows.values())
    for (execution, kind), c in counts(rows.values()).items():
        print(f"{execution} {kind}: {c.n_passed} of {c.n_operators}, {c.percent:.1f} %")
    if args.page is not None:
        with atomic_file(args.page) as file:
            file.write(page(rows.values()).encode())


if __name__ == "__main__":
    main()
