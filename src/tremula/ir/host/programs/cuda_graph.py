"""Host execution on a GPU: all device iterations of a call as one CUDA graph, launched at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tremula.ir.cuda_capture import capturing
from tremula.ir.host.programs.inductor import InductorProgram
from tremula.ir.host.programs.program import DeviceState, HostProgram, MicroBatch
from tremula.ir.host.programs.streams import SideBySide, runs_side_by_side
from tremula.ir.host.transfer.input_prefetch import Ahead
from tremula.ir.host.transfer.staging import Staging
from tremula.ir.step import INPUT, CapturedStep

_WARM_UP_RUNS = 3  # lets libraries choose kernels and allocate before the graph is captured
Give = Callable[[int, list[Tensor]], None]
MicroBatches = Sequence[Sequence[Tensor]]  # the inputs of each


class CudaGraphProgram(HostProgram):
    """Static memory for inputs and outputs; a call copies its batch in and replays the graph."""

    copies_inputs = True

    def __init__(self, step: CapturedStep, **options):
        super().__init__(step, **options)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured_for: DeviceState | None = None
        self._captured_floats: list[float] = []
        self._whole_inputs: list[Tensor] = []  # each that of all micro-batches
        self._inputs: list[list[Tensor]] = []  # views of them
        self._outputs: list[list[Tensor]] = []
        self._ahead = Ahead(self.device)
        self._staging = Staging()

    def executed(self, part: CapturedStep) -> MicroBatch:
        if runs_side_by_side(part, self.device):
            return SideBySide(part, self.device)
        return super().executed(part)

    def run(self, held: DeviceState, inputs: MicroBatches, give: Give) -> None:
        if self.must_capture(held):
            self.capture(held, inputs)
        given = self.copy_in(inputs)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(self.device))
        self.replay()
        self._ahead.fetch(given, copied)
        self.hand_out(inputs, give)

    def copy_in(self, inputs: MicroBatches) -> list[Tensor | None]:
        """One transfer for each input, of the micro-batches that lie side by side on the host.

        Returns them; one that lies elsewhere is None.
        """
        result: list[Tensor | None] = []
        for index, whole in enumerate(self._whole_inputs):
            given = [micro[index] for micro in inputs]
            together = side_by_side(given)
            result.append(together)
            if together is not None:
                fetched = self._ahead.take(index, together)
                if fetched is None:
                    self._staging.copy(index, together, whole)
                else:
                    whole.copy_(fetched, non_blocking=True)
                continue
            for target, value in zip(whole, given, strict=True):
                target.copy_(value, non_blocking=True)
        return result

    def replay(self) -> None:
        assert self._graph is not None, "captured before"
        self._graph.replay()

    def hand_out(self, inputs: MicroBatches, give: Give) -> None:
        for own, given in zip(self._inputs, inputs, strict=True):
            for _, slot in self.step.results_of_kind(INPUT):  # written by the model
                given[slot.index].copy_(own[slot.index])
        for number, outputs in enumerate(self._outputs):
            give(number, outputs)

    def store_buffers(
        self, buffers: list[Tensor], written: Sequence[int], values: list[Tensor]
    ) -> None:
        """One launch for all buffers of a type."""
        of_type: dict[torch.dtype, list[int]] = {}
        for index, value in enumerate(values):
            of_type.setdefault(value.dtype, []).append(index)
        for places in of_type.values():
            torch._foreach_copy_(  # pyright: ignore[reportPrivateImportUsage]
                [buffers[written[i]] for i in places], [values[i] for i in places]
            )

    def must_capture(self, held: DeviceState) -> bool:
        if self._graph is None or self._captured_for is not held:
            return True
        rule = self.rule
        return rule is not None and rule.must_recapture(self._captured_floats, held.hyper_floats)

    def capture(self, held: DeviceState, inputs: MicroBatches) -> None:
        """Run a few times to warm up, put everything back, then record one run."""
        self._make_inputs(inputs)
        kept = snapshot(held)
        self.warm_up(held, self._inputs)
        graph = torch.cuda.CUDAGraph()
        outputs: dict[int, list[Tensor]] = {}
        with own_workspaces(), capturing(graph), fastest_convolutions():
            super().run(held, self._inputs, outputs.__setitem__)
        restore(held, kept)
        self._outputs = [outputs[number] for number in sorted(outputs)]
        self._graph, self._captured_for = graph, held
        self._captured_floats = list(held.hyper_floats)

    def warm_up(self, held: DeviceState, inputs: MicroBatches) -> None:
        """Run what will be captured, on a stream of its own; the state goes on meanwhile."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), fastest_convolutions():
            for _ in range(_WARM_UP_RUNS):
                super().run(held, inputs, _ignore)
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def forget(self) -> None:
        """Give the memory of the captured graph back; the next run captures again."""
        self._graph = self._captured_for = None
        self._whole_inputs, self._inputs, self._outputs = [], [], []
        self._ahead = Ahead(self.device)
        self._staging = Staging()

    def _make_inputs(self, inputs: MicroBatches) -> None:
        self._whole_inputs = [
            torch.stack([tensor.to(self.device) for tensor in micros])
            for micros in zip(*inputs, strict=True)
        ]
        self._inputs = [
            [whole[number] for whole in self._whole_inputs] for number in range(len(inputs))
        ]


class InductorCudaGraphProgram(CudaGraphProgram, InductorProgram):
    """The same with fused kernels."""


def side_by_side(parts: Sequence[Tensor]) -> Tensor | None:
    """Tensors as one with a dimension more, if that is how they lie in memory."""
    first = parts[0]
    if len(parts) == 1:
        return first.unsqueeze(0)
    step = first.numel()
    is_regular = first.is_contiguous() and all(
        part.data_ptr() == first.data_ptr() + number * step * first.element_size()
        and part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        for number, part in enumerate(parts)
    )
    if not is_regular:
        return None
    return first.as_strided((len(parts), *first.shape), (step, *first.stride()))


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms: a captured graph replays what it chose."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = before or not cudnn.deterministic
    try:
        yield
    finally:
        cudnn.benchmark = before


@contextmanager
def own_workspaces() -> Iterator[None]:
    """Let a graph's products work in memory of the graph.

    cuBLAS keeps one workspace for each stream, and whoever captures a graph next, as
    `torch.compile` does, frees them all: a graph that replays with one from before would write
    into memory that others have.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _ignore(_number: int, _outputs: list[Tensor]) -> None:
    return


def all_tensors(held: DeviceState) -> list[Tensor]:
    return [
        *held.parameters,
        *(b for replica in held.buffers for b in replica),
        *held.states,
        *held.hyper_tensors,
    ]


def snapshot(held: DeviceState) -> list[Tensor]:
    return [tensor.clone() for tensor in all_tensors(held)]


def restore(held: DeviceState, kept: list[Tensor]) -> None:
    for tensor, value in zip(all_tensors(held), kept, strict=True):
        tensor.copy_(value)
