"""A host program: device copies of weights, the function of a micro-batch, the update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tremula.ir.host.distributed import join_processes, sum_over_processes
from tremula.ir.host.in_place import write_over_dead_operands
from tremula.ir.nodes import is_random, schema_name
from tremula.ir.optim.host import update_in_place
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.passes.split import on_device
from tremula.ir.step import BUFFER, GRADIENT, HYPER, INPUT, OUTPUT, PARAMETER, CapturedStep

MicroBatch = Callable[..., list[Tensor]]


@dataclass
class DeviceState:
    """What lives on the device from call to call."""

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

    def __init__(
        self,
        step: CapturedStep,
        *,
        device: torch.device,
        n_iterations: int = 1,
        n_accumulation: int = 1,
        n_replicas: int = 1,
        gradient_scale: float = 1.0,
        n_processes: int = 1,
    ):
        part = apply(step, HOST_PASSES, "host")
        self.step = part
        self.rule = step.rule
        self.device = device
        self.n_iterations = n_iterations
        self.n_accumulation = n_accumulation
        self.n_replicas = n_replicas
        self.gradient_scale = gradient_scale
        self.n_processes = n_processes
        join_processes(n_processes, device)
        self.is_random = has_random(part)
        move = partial(on_device, device=device)
        self.micro = self.compile(apply(part, (("move to the device", move),), "host"))
        self._places = {
            kind: [place for place, _ in part.results_of_kind(kind)]
            for kind in (OUTPUT, GRADIENT, BUFFER, INPUT)
        }
        self._written = [slot.index for _, slot in part.results_of_kind(BUFFER)]
        parameters = [slot.name for slot in step.inputs if slot.kind == PARAMETER]
        names = step.rule.names if step.rule is not None else ()
        self.trained = [parameters.index(name) for name in names]  # places of the rule's weights
        self._takes_hyper = [slot.index for _, slot in part.of_kind(HYPER)]

    def compile(self, part: CapturedStep) -> MicroBatch:
        """The function of one micro-batch: (parameters, buffers, inputs, hypers) flat, in order."""
        passes = (("write over dead operands", write_over_dead_operands),)
        return apply(part, passes, "host").module().forward

    def run(
        self,
        held: DeviceState,
        inputs: Sequence[Sequence[Tensor]],
        give: Callable[[int, list[Tensor]], None],
    ) -> None:
        """All micro-batches of a call, in order [iteration][accumulation][replica].

        `give(number, outputs)` receives what forward returned for micro-batch `number`.
        """
        with torch.no_grad():
            number = 0
            for _ in range(self.n_iterations):
                gradients = Gradients()
                for _ in range(self.n_accumulation):
                    for replica in range(self.n_replicas):
                        outputs, found = self.run_micro(held, replica, inputs[number])
                        give(number, outputs)
                        gradients.add(found)
                        number += 1
                if self.rule is not None:
                    self.update(held, gradients)

    def run_micro(
        self, held: DeviceState, replica: int, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        buffers = held.buffers[replica]
        hypers = [held.hyper_tensors[i] for i in self._takes_hyper]
        results = self.micro(*held.parameters, *buffers, *inputs, *hypers)
        for index, place in zip(self._written, self._places[BUFFER], strict=True):
            self.store_buffer(buffers, index, results[place])
        for place, (_, slot) in zip(
            self._places[INPUT], self.step.results_of_kind(INPUT), strict=True
        ):
            inputs[slot.index].copy_(results[place])
        return (
            [results[place] for place in self._places[OUTPUT]],
            [results[place] for place in self._places[GRADIENT]],
        )

    def store_buffer(self, buffers: list[Tensor], index: int, value: Tensor) -> None:
        """The new value of a buffer; a program with fixed addresses copies it instead."""
        buffers[index] = value

    def update(self, held: DeviceState, found: "Gradients") -> None:
        rule = self.rule
        assert rule is not None, "only training updates"
        if self.n_processes > 1:
            found.total = sum_over_processes(found.total)
        gradients = found.scaled(self.gradient_scale)
        trained = [held.parameters[i] for i in self.trained]
        next_scale = rule.next_loss_scale(gradients, held.hyper_tensors)
        update_in_place(
            rule, trained, gradients, held.states, held.hyper_tensors, held.hyper_floats
        )
        if next_scale is not None:  # found before the update, which may overwrite gradients
            held.set_loss_scale(next_scale)


class Gradients:
    """The sum over micro-batches. Those of one may be views, so they are not written.

    Operations on lists of tensors are what torch's own optimisers use; its stubs hide them.
    """

    def __init__(self) -> None:
        self.total: list[Tensor] = []
        self.is_own = False

    def add(self, found: list[Tensor]) -> None:
        if not self.total:
            self.total = found
        elif self.is_own:
            torch._foreach_add_(self.total, found)  # pyright: ignore[reportPrivateImportUsage]
        elif found:
            added = torch._foreach_add(self.total, found)  # pyright: ignore[reportPrivateImportUsage]
            self.total, self.is_own = list(added), True

    def scaled(self, factor: float) -> list[Tensor]:
        if factor == 1 or not self.total:
            return self.total
        return list(torch._foreach_mul(self.total, factor))  # pyright: ignore[reportPrivateImportUsage]


def has_random(step: CapturedStep) -> bool:
    """Whether the step draws random numbers."""
    return any(
        is_random(node) and not schema_name(node).startswith("aten::empty")
        for node in step.graph.nodes
        if node.op == "call_function"
    )
