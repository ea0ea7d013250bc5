"""What a call gives back: which micro-batches' results, joined how, per output mode."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.torch.arg_parsers import NARROWER
from tremula.frontends.torch.enums import OutputMode
from tremula.frontends.torch.exceptions import createPoptorchError
from tremula.frontends.torch.options import Options


class OutputCollector:
    """Receives the outputs of every micro-batch of one call and joins those the mode wants."""

    def __init__(self, options: Options, are_constant: list[bool]):
        self.mode = OutputMode(options.output_mode)
        self.period = options.output_return_period
        self.n_replicas = options.replication_factor
        self.n_per_iteration = options.Training.gradient_accumulation * self.n_replicas
        self.n_total = options.device_iterations * self.n_per_iteration
        self.are_constant = are_constant
        self.kept: list[list[Tensor]] = []
        self.sums: list[list[Tensor] | None] = [None] * self.n_replicas

    def give(self, number: int, outputs: list[Tensor]) -> None:
        """Take the outputs of micro-batch `number`, counted [iteration][accumulation][replica]."""
        if self.mode is OutputMode.Sum:
            replica = number % self.n_replicas
            before = self.sums[replica]
            # A copy at first: the memory of a replayed graph is written again.
            self.sums[replica] = (
                [o.clone() for o in outputs]
                if before is None
                else [total + value for total, value in zip(before, outputs, strict=True)]
            )
        elif self._is_wanted(number):
            self.kept.append(outputs)

    def _is_wanted(self, number: int) -> bool:
        if self.mode is OutputMode.Final:
            return number >= self.n_total - self.n_replicas
        if self.mode is OutputMode.EveryN:
            return (number // self.n_per_iteration + 1) % self.period == 0
        return True

    def results(self) -> list[Tensor]:
        """The joined outputs on the host, each a tensor of its own."""
        kept = self.kept
        if self.mode is OutputMode.Sum:
            kept = [total for total in self.sums if total is not None]
        return [
            _returned(parts[0] if constant else _joined(list(parts)))
            for parts, constant in zip(zip(*kept, strict=True), self.are_constant, strict=True)
        ]


def _joined(parts: list[Tensor]) -> Tensor:
    """Along the first dimension; scalars become a vector when there are several."""
    if len(parts) == 1:
        return parts[0]
    return torch.stack(parts) if parts[0].dim() == 0 else torch.cat(parts)


def _returned(tensor: Tensor) -> Tensor:
    """A fresh host tensor in a type the device has, that refuses to be differentiated."""
    host = tensor.detach().to("cpu", NARROWER.get(tensor.dtype, tensor.dtype))
    host = host.clone() if host.data_ptr() == tensor.data_ptr() else host
    host.backward = _refuse_backward
    return host


def _refuse_backward(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a"
        " trainingModel, the backwards pass is performed automatically when invoking the model."
    )


def group_of(options: Options, iteration: int, accumulation: int, replica: int) -> int:
    """Which slice of the input a replica reads: see Options.inputReplicaGrouping."""
    from tremula.frontends.torch.enums import CommGroupType

    size = options.input_group_size
    n_groups = options.replication_factor // size
    n_accumulation = options.Training.gradient_accumulation
    step = iteration * n_accumulation + accumulation
    if CommGroupType(options.input_cgt) is CommGroupType.Orthogonal and size > 1:
        return (replica % n_groups) * options.device_iterations * n_accumulation + step
    return step * n_groups + replica // size


def cut_inputs(tensors: list[Tensor], options: Options, slice_size: Callable) -> list[list[Tensor]]:
    """The micro-batches of a call, in the order they run."""
    order = [
        group_of(options, iteration, accumulation, replica)
        for iteration in range(options.device_iterations)
        for accumulation in range(options.Training.gradient_accumulation)
        for replica in range(options.replication_factor)
    ]
    if order == [0]:
        return [tensors]
    sizes = [slice_size(tensor) for tensor in tensors]
    return [
        [t[i * n : (i + 1) * n] if t.dim() else t for t, n in zip(tensors, sizes, strict=True)]
        for i in order
    ]
