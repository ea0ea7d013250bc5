"""Figures of a GPU, rehearsed on a CPU: their code runs, and each mode of torch.compile has one."""

from collections.abc import Callable

import pytest
import torch

from benchmarks import Figure, gpu_programs, load_suite
from benchmarks.gpu_programs import call_until_chosen, can_compile
from tremula.ir.host.programs.fastest import FastestProgram
from tremula.ir.run.session import HostSession


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models on a CPU; a compiler that returns the model, and rejects one mode."""

    def rejects(*_inputs: torch.Tensor) -> None:
        raise RuntimeError("no such mode\nin this test")

    def compile_model(model: torch.nn.Module, *, mode: str | None, **_options: object) -> object:
        return rejects if mode == "max-autotune" else model

    monkeypatch.setenv("TREMULA_BENCH_REHEARSAL", "1")
    monkeypatch.setenv("TREMULA_COMPILE_MODES", "default,reduce-overhead,max-autotune")
    monkeypatch.setattr(torch, "compile", compile_model)


def names(suite: str, case: str) -> list[str]:
    figures: list[Figure] = list(load_suite(suite).measure([case]))
    assert all(figure.value > 0 for figure in figures)
    return [figure.name for figure in figures]


def test_large_models(rehearsal: None, capsys: pytest.CaptureFixture[str]):
    """A figure for each mode; one that cannot compile is a line, and the others are measured."""
    name = "gpu-large-resnet50"
    expected = [f"{name}:default", f"{name}:reduce-overhead"]
    assert names("poptorch", "gpu-large:resnet50") == expected
    line = "torch.compile cannot train resnet50, max-autotune: no such mode\n"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "modes"),
    [
        pytest.param("gin-128", (), marks=pytest.mark.wide),
        ("schnet-8", ("default", "reduce-overhead", "dynamic")),
    ],
)
def test_molecules(rehearsal: None, case: str, modes: tuple[str, ...]):
    """Against eager, and for models with a bar for it against each mode and dynamic shapes."""
    expected = [f"gpu-{case}", *(f"gpu-{case}-compiled:{mode}" for mode in modes)]
    assert names("geometric", f"gpu:{case}") == expected


def test_large_graphs(rehearsal: None):
    """Eager, and each mode that compiles."""
    name = "gpu-large-graph-gcn"
    compiled = [f"{name}-compiled:default", f"{name}-compiled:reduce-overhead"]
    assert names("geometric", "gpu-large-graphs:gcn") == [name, *compiled]


def test_both_programs_are_compared_in_a_turn(monkeypatch: pytest.MonkeyPatch):
    """Until Inductor's program is compiled calls pause and others may measure."""
    program = FastestProgram.__new__(FastestProgram)
    program._chosen = program._rival = None
    events: list[str] = []

    class Turn:
        def __enter__(self) -> None:
            events.append("turn")

        def __exit__(self, *_error: object) -> None:
            events.append("end")

    def call() -> None:
        events.append("call")
        if len(events) == 2:
            program._rival = program  # pyright: ignore[reportAttributeAccessIssue]
        if len(events) == 5:
            program._chosen, program._is_stored, program._reason = program, False, "why"

    class Model:
        def compiled_program(self) -> object:
            session = HostSession.__new__(HostSession)
            session.program = program
            return type("Compiled", (), {"session": session})

    monkeypatch.setattr(gpu_programs, "alone", Turn)
    chosen = call_until_chosen(Model(), call, pause_s=0)  # pyright: ignore[reportArgumentType]
    assert chosen == "cuda-graph: why"
    assert events == ["call", "call", "turn", "call", "call", "end"]


@pytest.mark.parametrize(("call", "result"), [(lambda: None, True), (lambda: 1 / 0, False)])
def test_a_compiler_that_raises(call: Callable[[], object], result: bool):
    """Whatever it raises is a line, not an error."""
    assert can_compile("a model", call) is result
