"""Host execution on a GPU: all device iterations of a call as one CUDA graph, launched at once."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tremula.ir.host.inductor import InductorProgram
from tremula.ir.host.program import DeviceState, HostProgram
from tremula.ir.step import INPUT, CapturedStep

_WARM_UP_RUNS = 3  # lets libraries choose kernels and allocate before the graph is captured


class CudaGraphProgram(HostProgram):
    """Static memory for inputs and outputs; a call copies its batch in and replays the graph."""

    def __init__(self, step: CapturedStep, **options):
        super().__init__(step, **options)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured_for: DeviceState | None = None
        self._captured_floats: list[float] = []
        self._inputs: list[list[Tensor]] = []
        self._outputs: list[list[Tensor]] = []

    def run(
        self,
        held: DeviceState,
        inputs: Sequence[Sequence[Tensor]],
        give: Callable[[int, list[Tensor]], None],
    ) -> None:
        if self._must_capture(held):
            self._capture(held, inputs)
        for own, given in zip(self._inputs, inputs, strict=True):
            for target, value in zip(own, given, strict=True):
                target.copy_(value, non_blocking=True)
        assert self._graph is not None, "captured above"
        self._graph.replay()
        for own, given in zip(self._inputs, inputs, strict=True):
            for _, slot in self.step.results_of_kind(INPUT):  # written by the model
                given[slot.index].copy_(own[slot.index])
        for number, outputs in enumerate(self._outputs):
            give(number, outputs)

    def store_buffer(self, buffers: list[Tensor], index: int, value: Tensor) -> None:
        buffers[index].copy_(value)

    def _must_capture(self, held: DeviceState) -> bool:
        if self._graph is None or self._captured_for is not held:
            return True
        rule = self.rule
        return rule is not None and rule.must_recapture(self._captured_floats, held.hyper_floats)

    def _capture(self, held: DeviceState, inputs: Sequence[Sequence[Tensor]]) -> None:
        """Run a few times to warm up, put everything back, then record one run."""
        self._inputs = [[tensor.to(self.device).clone() for tensor in micro] for micro in inputs]
        kept = _snapshot(held)
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                super().run(held, self._inputs, _ignore)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        outputs: dict[int, list[Tensor]] = {}
        with torch.cuda.graph(graph):
            super().run(held, self._inputs, outputs.__setitem__)
        _restore(held, kept)
        self._outputs = [outputs[number] for number in sorted(outputs)]
        self._graph, self._captured_for = graph, held
        self._captured_floats = list(held.hyper_floats)


class InductorCudaGraphProgram(CudaGraphProgram, InductorProgram):
    """The same with fused kernels."""


def _ignore(_number: int, _outputs: list[Tensor]) -> None:
    return


def _all_tensors(held: DeviceState) -> list[Tensor]:
    return [
        *held.parameters,
        *(b for replica in held.buffers for b in replica),
        *held.states,
        *held.hyper_tensors,
    ]


def _snapshot(held: DeviceState) -> list[Tensor]:
    return [tensor.clone() for tensor in _all_tensors(held)]


def _restore(held: DeviceState, kept: list[Tensor]) -> None:
    for tensor, value in zip(_all_tensors(held), kept, strict=True):
        tensor.copy_(value)
