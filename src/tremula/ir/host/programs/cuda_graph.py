"""Host execution on a GPU: all device iterations of a call as one CUDA graph, launched at once.

A call of a training step returns when its outputs are on the host. The GPU may still compute
gradients and the update then; whatever reads weights, and the next call, wait in the same stream.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tremula.ir.cuda_capture import capturing
from tremula.ir.host.programs.inductor import InductorProgram
from tremula.ir.host.programs.program import DeviceState, HostProgram, MicroBatch
from tremula.ir.host.programs.streams import StreamedStep, fits_on_streams
from tremula.ir.host.transfer.inputs import InputPrefetcher, PinnedStaging
from tremula.ir.host.transfer.outputs import OutputHook, Outputs, SentOutputs, can_leave_early
from tremula.ir.step import INPUT, CapturedStep
from tremula.ir.torch_generators import random_state, set_random_state

_WARM_UP_RUNS = 3  # lets libraries choose kernels and allocate before the graph is captured
Give = Callable[[int, list[Tensor]], None]
MicroBatches = Sequence[Sequence[Tensor]]  # the inputs of each


class CudaGraphProgram(HostProgram):
    """Static memory for inputs and outputs; a call copies its batch in and replays the graph."""

    copies_inputs = True

    def __init__(self, step: CapturedStep, **options):
        if can_leave_early(step):
            self.output_hook = OutputHook()
        super().__init__(step, **options)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured_for: DeviceState | None = None
        self._captured_floats: list[float] = []
        self._whole_inputs: list[Tensor] = []  # each of all micro-batches
        self._inputs: list[list[Tensor]] = []  # views of them
        self._outputs: dict[int, list[Tensor]] = {}  # of each micro-batch
        self._sent: SentOutputs | None = None  # where outputs arrive before the end of a replay
        self._prefetcher = InputPrefetcher(self.device)
        self._staging = PinnedStaging()

    def executed(self, part: CapturedStep) -> MicroBatch:
        if fits_on_streams(part, self.device):
            return StreamedStep(part, self.device, self.output_hook)
        return super().executed(part)

    def run(self, state: DeviceState, inputs: MicroBatches, give: Give) -> None:
        if self.must_capture(state):
            self.capture(state, inputs)
        copied_inputs = self.copy_in(inputs)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(self.device))
        self.replay()
        self._prefetcher.start(copied_inputs, copied)
        self.hand_out(inputs, give)

    def copy_in(self, inputs: MicroBatches) -> list[Tensor | None]:
        """One transfer for each input whose micro-batches are contiguous on the host.

        Returns these tensors, and None for other inputs.
        """
        result: list[Tensor | None] = []
        for index, whole in enumerate(self._whole_inputs):
            parts = [micro[index] for micro in inputs]
            together = as_one_tensor(parts)
            result.append(together)
            if together is not None:
                fetched = self._prefetcher.take(index, together)
                if fetched is None:
                    self._staging.copy(index, together, whole)
                else:
                    whole.copy_(fetched, non_blocking=True)
                continue
            for target, value in zip(whole, parts, strict=True):
                target.copy_(value, non_blocking=True)
        return result

    def replay(self) -> None:
        assert self._graph is not None, "captured before"
        self._graph.replay()

    def hand_out(self, inputs: MicroBatches, give: Give) -> None:
        for static, caller in zip(self._inputs, inputs, strict=True):
            for _, slot in self.step.results_of_kind(INPUT):  # written by the model
                caller[slot.index].copy_(static[slot.index])
        outputs_of_micros = self._outputs if self._sent is None else self._sent.received()
        for number, outputs in outputs_of_micros.items():
            give(number, outputs)

    def run_micro(
        self, state: DeviceState, replica: int, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        hook = self.output_hook
        n_before = 0 if hook is None else hook.n_calls
        outputs, gradients = super().run_micro(state, replica, inputs)
        if hook is not None and hook.n_calls == n_before:  # none of its parts ends with outputs
            hook(*outputs)
        return outputs, gradients

    def store_buffers(
        self, buffers: list[Tensor], written: Sequence[int], values: list[Tensor]
    ) -> None:
        """One launch for all buffers of a type."""
        of_type: dict[torch.dtype, list[int]] = {}
        for index, value in enumerate(values):
            of_type.setdefault(value.dtype, []).append(index)
        for indices in of_type.values():
            torch._foreach_copy_(  # pyright: ignore[reportPrivateImportUsage]
                [buffers[written[i]] for i in indices], [values[i] for i in indices]
            )

    def must_capture(self, state: DeviceState) -> bool:
        if self._graph is None or self._captured_for is not state:
            return True
        rule = self.rule
        return rule is not None and rule.must_recapture(self._captured_floats, state.hyper_floats)

    def capture(self, state: DeviceState, inputs: MicroBatches) -> None:
        """Run a few times to warm up, put everything back, then record one run.

        Random numbers continue as if nothing had run: a program can be recorded again at any time.
        """
        torch.cuda.current_stream(self.device).synchronize()  # the graph before may still run
        self._make_inputs(inputs)
        saved, drawn = snapshot(state), random_state(self.device)
        self._sent = self._memory_for(self.warm_up(state, self._inputs))
        set_random_state(self.device, drawn)
        graph = torch.cuda.CUDAGraph()
        outputs: dict[int, list[Tensor]] = {}
        if self.fused_update is not None:
            self.fused_update.start_recording(self.repetition.n_iterations, self.device)
        with private_workspaces(), capturing(graph), fastest_convolutions(), self._sending():
            super().run(state, self._inputs, outputs.__setitem__)
        if self.fused_update is not None:
            self.fused_update.end_recording()
        restore(state, saved)
        self._outputs = outputs
        self._graph, self._captured_for = graph, state
        self._captured_floats = list(state.hyper_floats)

    def _memory_for(self, outputs: Outputs) -> SentOutputs | None:
        """Where outputs arrive on the host, if they can leave early."""
        read = {n: some for n, some in outputs.items() if self.reads_outputs(n)}
        can_send = self.output_hook is not None and SentOutputs.fit(read)
        return SentOutputs(self.device, read) if can_send else None

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Record the copies of outputs, too."""
        if self.output_hook is None or self._sent is None:
            yield
            return
        self.output_hook.listener = self._sent.send
        try:
            yield
            self._sent.end()
        finally:
            self.output_hook.listener = None

    def warm_up(self, state: DeviceState, inputs: MicroBatches) -> Outputs:
        """Run what will be captured, on a separate stream; each run changes the state.

        Returns tensors like the outputs of each micro-batch, without memory.
        """
        outputs: dict[int, list[Tensor]] = {}

        def note(number: int, some: list[Tensor]) -> None:
            outputs[number] = [torch.empty_like(tensor, device="meta") for tensor in some]

        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), fastest_convolutions():
            for _ in range(_WARM_UP_RUNS):
                super().run(state, inputs, note)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return outputs

    def forget(self) -> None:
        """Free the memory of the captured graph; the next run captures again."""
        torch.cuda.current_stream(self.device).synchronize()
        self._graph = self._captured_for = None
        self._whole_inputs, self._inputs, self._outputs, self._sent = [], [], {}, None
        self._prefetcher = InputPrefetcher(self.device)
        self._staging = PinnedStaging()

    def _make_inputs(self, inputs: MicroBatches) -> None:
        self._whole_inputs = [
            torch.stack([tensor.to(self.device) for tensor in micros])
            for micros in zip(*inputs, strict=True)
        ]
        self._inputs = [
            [whole[number] for whole in self._whole_inputs] for number in range(len(inputs))
        ]


class InductorCudaGraphProgram(CudaGraphProgram, InductorProgram):
    """A CUDA graph of kernels that Inductor has fused."""


def as_one_tensor(parts: Sequence[Tensor]) -> Tensor | None:
    """Tensors stacked without a copy; None if they are not contiguous in memory."""
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
def private_workspaces() -> Iterator[None]:
    """Put the workspaces of a graph's products into the memory of the graph.

    cuBLAS keeps one workspace for each stream, and the next capture of a graph, such as that of
    `torch.compile`, frees them all: a graph that replays with an older one would write into memory
    that has other owners.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def all_tensors(state: DeviceState) -> list[Tensor]:
    return [
        *state.parameters,
        *(b for replica in state.buffers for b in replica),
        *state.states,
        *state.hyper_tensors,
    ]


def snapshot(state: DeviceState) -> list[Tensor]:
    return [tensor.clone() for tensor in all_tensors(state)]


def restore(state: DeviceState, saved: list[Tensor]) -> None:
    for tensor, value in zip(all_tensors(state), saved, strict=True):
        tensor.copy_(value)
