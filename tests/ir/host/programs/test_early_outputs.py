"""Which outputs a recorded program sends to the host before its end; a GPU's calls are replaced."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import poptorch
from tests.ir.steps import training_step
from tremula.frontends.poptorch.executor.outputs import returned_by
from tremula.ir.host.programs import cuda_graph
from tremula.ir.host.programs.cuda_graph import CudaGraphProgram
from tremula.ir.host.programs.program import DeviceState
from tremula.ir.repetition import Repetition

CPU = torch.device("cpu")
N = 3  # iterations of a call


class Nothing:
    """In place of streams, events and graphs: every call does nothing."""

    def __init__(self, *_args: object, **_options: object) -> None: ...
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_options: None


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded runs once, at once; replays do nothing."""
    for name in ("Stream", "Event", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
    for name in ("capturing", "private_workspaces", "fastest_convolutions"):
        monkeypatch.setattr(cuda_graph, name, lambda *_args: nullcontext())
    monkeypatch.setattr(cuda_graph, "InputPrefetcher", Nothing)
    monkeypatch.setattr(cuda_graph, "fits_on_streams", lambda _step, _device: False)
    empty_like = torch.empty_like

    def unpinned(like: Tensor, *, pin_memory: bool = False, **options: Any) -> Tensor:
        del pin_memory
        return empty_like(like, **options)

    monkeypatch.setattr(torch, "empty_like", unpinned)


class Line(nn.Module):
    """The mean square of a product."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.line(x), torch.zeros(len(x), 1))


def called(
    monkeypatch: pytest.MonkeyPatch, returned: frozenset[int] | None, most_bytes: int
) -> tuple[dict[int, float], CudaGraphProgram]:
    """The outputs that a first call gives, by micro-batch."""
    monkeypatch.setattr("tremula.ir.host.transfer.outputs._MOST_BYTES", most_bytes)
    torch.manual_seed(0)
    model = Line()
    step = training_step(model, torch.randn(2, 4))
    program = CudaGraphProgram(
        step, device=CPU, repetition=Repetition(n_iterations=N), returned=returned
    )
    weights = [p.detach().clone() for p in model.parameters()]
    state = DeviceState(weights, [[]], [], [torch.tensor(0.1)], [0.1])
    read: dict[int, float] = {}
    inputs = [[torch.full((2, 4), float(number + 1))] for number in range(N)]
    program.run(state, inputs, lambda number, outputs: read.update({number: float(outputs[0])}))
    return read, program


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("returned", [None, frozenset({N - 1}), frozenset({0, 2})], ids=str)
def test_only_outputs_that_are_read_are_sent(
    monkeypatch: pytest.MonkeyPatch, returned: frozenset[int] | None
):
    """They are those that come when the step ends, where they are too large to be sent early."""
    late, program = called(monkeypatch, returned, most_bytes=0)
    assert program._sent is None
    early, program = called(monkeypatch, returned, most_bytes=1 << 20)
    assert program._sent is not None
    assert set(late) == set(range(N))
    assert early == {number: late[number] for number in (late if returned is None else returned)}
    assert len(set(late.values())) == N


@pytest.mark.usefixtures("without_gpu")
def test_what_is_given_is_not_written_by_the_next_call(monkeypatch: pytest.MonkeyPatch):
    """Pinned memory is written by each replay."""
    _, program = called(monkeypatch, None, most_bytes=1 << 20)
    assert program._sent is not None
    first = program._sent.received()[0][0]
    before = float(first)
    for outputs in program._sent._pinned.values():
        outputs[0].zero_()
    assert float(first) == before != 0


def test_micro_batches_that_options_return():
    """Of forward's outputs, and of anchored tensors, which have modes of their own."""
    options = poptorch.Options().deviceIterations(4)
    options.outputMode(poptorch.OutputMode.Final)
    assert returned_by(options) == {3}
    options.anchorTensor("kept", "x", poptorch.OutputMode.EveryN, 2)
    assert returned_by(options) == {1, 3}
    options.anchorTensor("total", "y", poptorch.OutputMode.Sum)
    assert returned_by(options) is None
