"""The compiling process: what it is sent, what it answers, and what happens when it fails."""

import gc
import io
import operator
import os
import select
import signal
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx, nn

from tests.ir.host.programs.test_equal_layers import Layered
from tests.ir.steps import captured, training_step
from tremula.ir.host.compiled import pool, prepare, store, worker
from tremula.ir.host.compiled.functions import CompiledFunction, FunctionRecord
from tremula.ir.host.compiled.requests import (
    CompileRequest,
    module_of,
    receive_answer,
    request_of,
    stand_ins,
)
from tremula.ir.host.programs.equal_layers import PartedGraph, equal_parts
from tremula.ir.host.programs.inductor import CompiledGraph, prepare_all
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.run import compiled_step
from tremula.ir.run.compiled_step import StepSettings, StepToCompile, compile_step
from tremula.ir.step import CapturedStep


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))  # Inductor keeps its compiled headers
    return tmp_path


@contextmanager
def started_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[pool.CompilePool]:
    """A compiling process that models of earlier tests do not use."""
    monkeypatch.setattr(pool._RunningPool, "pool", None)
    monkeypatch.setattr(pool._RunningPool, "n_users", 0)
    use, running = pool.start_pool(), pool.running_pool()
    assert use is not None
    assert running is not None
    try:
        yield running
    finally:
        use.end()


@pytest.fixture
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forks that store the number of a request's results instead of compiling it."""

    def stored(request: CompileRequest, _n_threads: int) -> None:
        if request.key.startswith("bad"):
            raise ValueError("cannot be compiled" + request.key[3:])
        if request.key.startswith("slow") and gc.isenabled():
            raise ValueError("it collects garbage")
        if request.key.startswith("dead"):
            os.kill(os.getpid(), signal.SIGKILL)
        text = f"def call(args):\n    return {len(request.results)}\n"
        store.store_function(request.key, FunctionRecord(text, {}, 1, ()))

    for module in pool, worker:  # nothing here uses a GPU, if there is one
        monkeypatch.setattr(module, "may_fork", lambda: True)
    monkeypatch.setattr(worker, "load", lambda: None)
    monkeypatch.setattr(worker, "compile_request", stored)
    with started_pool(monkeypatch):
        yield


def step_of_two() -> CapturedStep:
    return captured(lambda x: [torch.tanh(x), x.split(2)[1] * 2.0], torch.ones(4, 3))


def request(key: str) -> CompileRequest:
    return request_of(key, step_of_two().graph, [torch.ones(4, 3)], {})


def test_a_graph_is_read_as_it_was_sent():
    """Operations, numbers, lists and parts of results are those of the graph."""
    step, x = step_of_two(), torch.randn(4, 3)
    sent = request("a" * 32)
    module = module_of(sent)
    torch.testing.assert_close(list(module(x)), list(step.module()(x)), rtol=0, atol=0)
    assert [t.shape for t in stand_ins(sent)] == [(4, 3)]


def test_graphs_that_only_this_process_has_are_not_sent():
    """A function of the script, or a constant, is compiled here."""
    for target, attribute in ((test_a_graph_is_read_as_it_was_sent, None), (operator.neg, "w")):
        graph = fx.Graph()
        x = graph.placeholder("x") if attribute is None else graph.get_attr(attribute)
        graph.output([graph.call_function(target, (x,))])
        with pytest.raises(ValueError, match=r"another process|of kind get_attr"):
            request_of("a" * 32, graph, [torch.ones(1)], {})


@pytest.mark.usefixtures("without_inductor")
def test_each_request_is_answered():
    """One that fails, or whose process ends, does not disturb the others."""
    running = pool.running_pool()
    assert running is not None
    requests = [request(key * 8) for key in ("good", "bad1", "dead", "fine")]
    errors = running.compile(requests)
    assert [bool(error) for error in errors] == [False, True, True, False]
    assert "cannot be compiled" in errors[1]
    assert store.stored_function("good" * 8) is not None
    assert running.compile([request("next" * 8)]) == [""], "it goes on"


@pytest.mark.usefixtures("without_inductor")
def test_forks_collect_no_garbage():
    """A collection would copy what a fork shares with its parent: all of PyTorch."""
    running = pool.running_pool()
    assert running is not None
    assert running.compile([request("slow" * 8)]) == [""]


def test_what_cannot_be_prepared_is_left_to_the_forks(monkeypatch: pytest.MonkeyPatch):
    """Such as a driver of Triton on a computer without a C compiler."""

    def fails() -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(prepare, "prepare_generators", fails)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in the process, since importing Inductor warns
        prepare.load()


@pytest.mark.usefixtures("without_inductor")
def test_a_process_that_ended_answers_nothing():
    """Whoever asked is told so at once, and compiles itself."""
    running = pool.running_pool()
    assert running is not None
    running._end()
    (error,) = running.compile([request("good" * 8)])
    assert "ended" in error


def test_warnings_do_not_end_the_process(monkeypatch: pytest.MonkeyPatch):
    """Scripts that make warnings errors have a compiling process, too."""
    monkeypatch.setattr(pool, "may_fork", lambda: True)
    monkeypatch.setattr(worker, "load", lambda: warnings.warn("old", DeprecationWarning, 2))
    monkeypatch.setattr(worker, "compile_request", lambda *_: None)
    with started_pool(monkeypatch) as running:
        assert running.compile([request("good" * 8)]) == [""]


@pytest.mark.usefixtures("without_inductor")
def test_long_errors_are_cut(monkeypatch: pytest.MonkeyPatch):
    """An error that is cut inside a letter is an answer like others."""
    running = pool.running_pool()
    assert running is not None
    (error,) = running.compile([request("bad:" + "é" * 2000)])
    assert "cannot be compiled" in error


def test_other_text_is_not_an_answer():
    """What a library prints on the pipe, and numbers of no request, are errors that say so."""
    for content in (b"loaded the library\n", *map(framed, (b"[1, ", b"[1]", b'[3, ""]', b"5"))):
        with pytest.raises(ValueError, match=r"expected|Expecting"):
            receive_answer(io.BytesIO(content), 3)
    assert receive_answer(io.BytesIO(framed(b'[2, "why"]')), 3) == (2, "why")


def framed(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def test_the_process_lives_as_long_as_models_need_it(monkeypatch: pytest.MonkeyPatch):
    """One model ends its use twice, another is deleted; a variable turns the process off."""
    monkeypatch.setattr(worker, "load", lambda: None)
    with started_pool(monkeypatch) as first:
        uses = [pool.start_pool() for _ in range(2)]
        assert all(use is not None for use in uses)
    assert pool.running_pool() is first
    for _ in range(2):
        uses[0].end()  # pyright: ignore[reportOptionalMemberAccess] - see above
        assert pool.running_pool() is first
    uses.clear()
    assert pool.running_pool() is None
    monkeypatch.setenv(pool.OFF_VARIABLE, "0")
    assert pool.start_pool() is None
    assert pool.running_pool() is None


def test_a_model_that_cannot_be_captured_does_not_use_it(monkeypatch: pytest.MonkeyPatch):
    """Its error refers to what was captured, and may be kept for long."""
    monkeypatch.setattr(worker, "load", lambda: None)

    def fails(_tensors: list[Tensor]) -> tuple[list[Tensor], None]:
        raise ValueError("no such input")

    with started_pool(monkeypatch):
        monkeypatch.setattr(compiled_step, "_start_compiler", lambda *_: pool.start_pool())
        to_compile = StepToCompile(nn.Identity(), fails, [torch.ones(2)], ["x"])
        with pytest.raises(ValueError, match="no such input") as error:
            compile_step(to_compile, StepSettings())
    assert pool.running_pool() is None, error


def test_an_answer_does_not_wait_for_other_processes_of_its_fork(monkeypatch: pytest.MonkeyPatch):
    """Inductor's processes live longer than the fork that they compile for, and have its pipe."""
    end_read, end_write = os.pipe()
    is_alive, alive_write = os.pipe()

    def compiled(_request: CompileRequest, _n_threads: int) -> str:
        if os.fork() == 0:
            os.close(end_write)
            select.select([end_read], [], [], 10.0)  # until the test closes its end
            os._exit(0)
        return "done"

    monkeypatch.setattr(worker, "_compiled", compiled)
    monkeypatch.setattr(worker, "may_fork", lambda: True)
    answers = io.BytesIO()
    worker._compile_all([request("a" * 32)], answers)
    os.close(alive_write)
    assert not select.select([is_alive], [], [], 0.0)[0], "it had ended before the answer"
    for end in (end_write, end_read, is_alive):
        os.close(end)
    answers.seek(0)
    assert receive_answer(answers, 1) == (0, "")


@pytest.mark.slow
def test_parts_are_compiled_by_forks(monkeypatch: pytest.MonkeyPatch):
    """A step of equal layers gives ATen's results, and this process compiles nothing."""
    if not worker.may_fork():
        pytest.skip("other tests have used the GPU in this process: a fork could not compile")
    monkeypatch.setattr(CompiledGraph, "compile", None)
    torch.manual_seed(0)
    model, x = Layered([16] * 4), torch.randn(4, 8)  # the last one differs: it has the loss
    with started_pool(monkeypatch):
        step = apply(training_step(model, x), HOST_PASSES, "host")
        arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
        compiled = partial(CompiledGraph, choices={})
        parts = equal_parts(step)
        assert len({part.key for part in parts}) < len(parts), "some are equal"
        graph = PartedGraph(step, parts, compiled, prepare_all)
        graph.prepare(arguments)
    torch.testing.assert_close(graph(*arguments), step.module()(*arguments))
    assert graph.record(()) is not None


@pytest.mark.slow
def test_a_new_process_compiles_where_none_can_be_forked(monkeypatch: pytest.MonkeyPatch):
    """What it stored computes what ATen does."""
    monkeypatch.setattr(pool, "may_fork", lambda: False)
    with started_pool(monkeypatch) as running:
        assert not running.is_fork
        assert running.compile([request("a" * 32)]) == [""]
    record, x = store.stored_function("a" * 32), torch.randn(4, 3)
    assert record is not None
    function = CompiledFunction(record, store.binary_path, torch.device("cpu"))
    torch.testing.assert_close(list(function([x])), list(step_of_two().module()(x)))
