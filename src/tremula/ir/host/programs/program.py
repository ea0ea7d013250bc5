"""A host program: device copies of weights, the function of a micro-batch, the update."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from tremula.ir.host.graph_kernels.fuse import fuse_graph_kernels
from tremula.ir.host.passes.fused_attention import fuse_attention
from tremula.ir.host.passes.halves import WideCopies, convert_natively, round_
from tremula.ir.host.passes.in_place import write_over_dead_operands
from tremula.ir.host.passes.memory_format import (
    column_major_weights,
    image_format,
    keep_contiguity,
    keep_memory_format,
    relax_strides,
)
from tremula.ir.host.passes.spelled_attention import spell_out_attention
from tremula.ir.host.passes.substitute_kernels import differentiate_by_forward_kernels
from tremula.ir.host.programs.distributed import join_processes, sum_over_processes
from tremula.ir.host.programs.float_checks import FloatChecker
from tremula.ir.host.transfer.outputs import OutputHook, with_hook
from tremula.ir.host.weight_updates.update import FusedUpdate
from tremula.ir.nodes import is_random, schema_name
from tremula.ir.optim.grouped_rule import GroupedRule
from tremula.ir.optim.in_place import update_in_place
from tremula.ir.passes import HOST_PASSES, Passes, apply
from tremula.ir.passes.clean import drop_dead
from tremula.ir.passes.half_as_float import has_halves, widen_halves
from tremula.ir.passes.split import on_device
from tremula.ir.repetition import Repetition
from tremula.ir.step import BUFFER, GRADIENT, HYPER, INPUT, OUTPUT, PARAMETER, CapturedStep

MicroBatch = Callable[..., list[Tensor]]


@dataclass
class DeviceState:
    """What stays on the device from call to call."""

    parameters: list[Tensor]
    buffers: list[list[Tensor]]  # per replica: those that are written; shared otherwise
    states: list[Tensor]
    hyper_tensors: list[Tensor]
    hyper_floats: list[float]

    def set_loss_scale(self, scale: Tensor) -> None:
        """The scale of the next step: updates on a CPU read the number, on a GPU the tensor."""
        self.hyper_tensors[-1].copy_(scale)
        if scale.device.type == "cpu":
            self.hyper_floats[-1] = float(scale)


class HostProgram:
    """Runs the step. Subclasses say how the micro-batch function is made and launched."""

    copies_inputs = False  # otherwise inputs must be on the device before a run
    compiles_late = False  # at the first run, if at all
    output_hook: OutputHook | None = None  # called in each micro-batch, once outputs are computed

    def __init__(
        self,
        step: CapturedStep,
        *,
        device: torch.device,
        repetition: Repetition | None = None,
        checks_floats: bool = False,
        rounds_stochastically: bool = False,
        returned: Collection[int] | None = None,
    ):
        part = apply(step, HOST_PASSES, "host")
        self.step = part
        self.rule = step.rule
        self.device = device
        self.repetition = repetition or Repetition()
        self._returned = returned  # micro-batches whose outputs are read; None: all
        self.checks_floats = checks_floats  # an operation that makes a NaN is an error; slow
        join_processes(self.repetition.n_processes, device)
        self.is_random = has_random(part)
        self.image_format = image_format(part, device)
        self.column_major_weights = column_major_weights(part, device)
        move = partial(on_device, device=device)
        passes: Passes = (("move to the device", move),)
        if device.type == "cuda":
            passes += (
                ("fuse attention", fuse_attention),
                ("drop dead nodes", drop_dead),
                ("relax strides", relax_strides),
                ("fuse graph kernels", partial(fuse_graph_kernels, device=device)),
            )
        else:
            passes += (("spell out attention", spell_out_attention), ("drop dead nodes", drop_dead))
        self.is_wide = device.type == "cpu" and has_halves(part)  # halves are computed as floats
        if self.is_wide:
            passes += (("compute halves as floats", widen_halves), ("drop dead nodes", drop_dead))
        self._passes = passes
        if not self.compiles_late:
            _ = self.micro
        self._wide = WideCopies()
        self._positions = {
            kind: [position for position, _ in part.results_of_kind(kind)]
            for kind in (OUTPUT, GRADIENT, BUFFER, INPUT)
        }
        self._half_gradients = [  # those that are halves in float32
            self.is_wide and part.results()[position].meta["val"].dtype is torch.float16
            for position in self._positions[GRADIENT]
        ]
        self._written = [slot.index for _, slot in part.results_of_kind(BUFFER)]
        parameters = [slot.name for slot in step.inputs if slot.kind == PARAMETER]
        names = step.rule.names if step.rule is not None else ()
        self.trained = [parameters.index(name) for name in names]  # indices of the rule's weights
        rule = step.rule if isinstance(step.rule, GroupedRule) else None
        self.fused_update = (
            FusedUpdate(rule, rounds_stochastically)
            if rule is not None and device.type == "cuda"
            else None
        )  # the only operation that rounds at random, where that is wanted
        self._takes_hyper = [slot.index for _, slot in part.of_kind(HYPER)]

    def reads_outputs(self, number: int) -> bool:
        """Whether the outputs of a micro-batch of a call are read."""
        return self._returned is None or number in self._returned

    @cached_property
    def micro(self) -> MicroBatch:
        """The function of one micro-batch."""
        return self.make_micro()

    def make_micro(self) -> MicroBatch:
        return self.compile(apply(self.step, self._passes, "host"))

    def compile(self, part: CapturedStep) -> MicroBatch:
        """The function of one micro-batch: (parameters, buffers, inputs, hypers) flat, in order."""
        overwrite = partial(write_over_dead_operands, owns_buffers=self.device.type == "cpu")
        passes: Passes = (
            ("keep contiguity", keep_contiguity),
            ("keep memory format", keep_memory_format),
            ("write over dead operands", overwrite),
        )
        if self.device.type == "cpu":
            passes += (
                ("differentiate by forward kernels", differentiate_by_forward_kernels),
                ("relax strides", relax_strides),  # fake kernels and real ones differ in strides
            )
        if self.is_wide:
            passes = (("convert halves natively", convert_natively), *passes)
        return self.executed(apply(part, passes, "host"))

    def executed(self, part: CapturedStep) -> MicroBatch:
        """The graph as a function, one ATen operation after another."""
        hook = self.output_hook
        module = part.module() if hook is None else with_hook(part, hook)
        return FloatChecker(module).run if self.checks_floats else module.forward

    def run(
        self,
        state: DeviceState,
        inputs: Sequence[Sequence[Tensor]],
        give: Callable[[int, list[Tensor]], None],
    ) -> None:
        """All micro-batches of a call, in order [iteration][accumulation][replica].

        `give(number, outputs)` receives what forward returned for micro-batch `number`.
        """
        with torch.no_grad():
            number = 0
            for _ in range(self.repetition.n_iterations):
                gradients = self.no_gradients()
                for _ in range(self.repetition.n_accumulation):
                    for replica in range(self.repetition.n_replicas):
                        outputs, result = self.run_micro(state, replica, inputs[number])
                        give(number, outputs)
                        gradients.add(result)
                        number += 1
                if self.rule is not None:
                    self.update(state, gradients)

    def run_micro(
        self, state: DeviceState, replica: int, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        buffers = state.buffers[replica]
        results = self.micro(*self.arguments(state, replica, inputs))
        self.store_buffers(buffers, self._written, [results[i] for i in self._positions[BUFFER]])
        for position, (_, slot) in zip(
            self._positions[INPUT], self.step.results_of_kind(INPUT), strict=True
        ):
            inputs[slot.index].copy_(results[position])
        return (
            [results[position] for position in self._positions[OUTPUT]],
            [results[position] for position in self._positions[GRADIENT]],
        )

    def arguments(self, state: DeviceState, replica: int, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the function of a micro-batch takes."""
        hypers = [state.hyper_tensors[i] for i in self._takes_hyper]
        parameters = self._wide.of(state.parameters) if self.is_wide else state.parameters
        return [*parameters, *state.buffers[replica], *inputs, *hypers]

    def no_gradients(self) -> "Gradients":
        """The sum, or mean, before the first micro-batch."""
        if self.repetition.has_running_mean and self.rule is not None:
            return RunningMean(self.rule.accum_dtype, self._half_gradients)
        return Gradients(self._half_gradients)

    def store_buffers(
        self, buffers: list[Tensor], written: Sequence[int], values: list[Tensor]
    ) -> None:
        """The new values of buffers; a program with fixed addresses copies them instead."""
        for index, value in zip(written, values, strict=True):
            buffers[index] = value

    def update(self, state: DeviceState, total: "Gradients") -> None:
        rule = self.rule
        assert rule is not None, "only training updates"
        if self.repetition.n_processes > 1:
            total.replace(sum_over_processes(total.total))
        gradients = total.scaled(self.repetition.gradient_scale * total.n_averaged)
        trained, states = [state.parameters[i] for i in self.trained], state.states
        next_scale = rule.next_loss_scale(gradients, state.hyper_tensors, states)
        halves = (trained, states)
        if self.is_wide:
            trained, states = self._wide.of(trained), self._wide.of(states)
        hyper = state.hyper_tensors, state.hyper_floats
        fused = self.fused_update.run if self.fused_update is not None else None
        update_in_place(rule, trained, gradients, states, *hyper, fused)
        if self.is_wide:
            self._wide.store(halves[0], trained)
            self._wide.store(halves[1], states)
        if next_scale is not None:  # computed before the update, which may overwrite gradients
            state.set_loss_scale(next_scale)


class Gradients:
    """The sum over micro-batches. Gradients of one may be views, so they are not overwritten.

    PyTorch's optimisers use the operations on lists of tensors, too; its stubs hide them.
    """

    def __init__(self, are_halves: Sequence[bool] = ()) -> None:
        self.total: list[Tensor] = []
        self.n_averaged = 1  # the total has been divided by this
        self.may_overwrite = False
        self.are_halves = are_halves  # halves in float32: every sum is rounded

    def add(self, gradients: list[Tensor]) -> None:
        if not self.total:
            self.total = gradients
        elif self.may_overwrite:
            torch._foreach_add_(self.total, gradients)  # pyright: ignore[reportPrivateImportUsage]
            self._round(self.total)
        elif gradients:
            added = torch._foreach_add(self.total, gradients)  # pyright: ignore[reportPrivateImportUsage]
            self.replace(list(added))

    def replace(self, total: list[Tensor]) -> None:
        """Set another total, which this object may overwrite."""
        self.total, self.may_overwrite = total, True
        self._round(total)

    def scaled(self, factor: float) -> list[Tensor]:
        if factor == 1 or not self.total:
            return self.total
        scaled = list(torch._foreach_mul(self.total, factor))  # pyright: ignore[reportPrivateImportUsage]
        self._round(scaled)
        return scaled

    def _round(self, tensors: list[Tensor]) -> None:
        for tensor, is_half in zip(tensors, self.are_halves, strict=False):
            if is_half:
                round_(tensor)


class RunningMean(Gradients):
    """mean + (gradient - mean) / n after each micro-batch, rounded to the accumulators' type."""

    def __init__(self, dtype: torch.dtype, are_halves: Sequence[bool] = ()) -> None:
        super().__init__(are_halves)
        self.dtype, self.n, self.types = dtype, 0, []

    def add(self, gradients: list[Tensor]) -> None:
        self.n += 1
        self.n_averaged = self.n
        self.types = [gradient.dtype for gradient in gradients]
        wide = [gradient.float() for gradient in gradients]
        if self.n > 1:
            pairs = zip(self.total, wide, strict=True)
            wide = [mean + (gradient - mean) / self.n for mean, gradient in pairs]
        self.total, self.may_overwrite = [mean.to(self.dtype).float() for mean in wide], True

    def scaled(self, factor: float) -> list[Tensor]:
        """The mean in the types that the gradients have."""
        means = [(mean * factor).to(self.dtype) for mean in self.total]
        means = [mean.to(dtype) for mean, dtype in zip(means, self.types, strict=True)]
        self._round(means)
        return means


def has_random(step: CapturedStep) -> bool:
    """Whether the step draws random numbers."""
    return any(
        is_random(node) and not schema_name(node).startswith("aten::empty")
        for node in step.graph.nodes
        if node.op == "call_function"
    )
