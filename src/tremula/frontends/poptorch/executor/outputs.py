"""Inputs of a call split into micro-batches, and its results selected and joined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.frontends.poptorch.enums import CommGroupType, OutputMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arg_parsers import NARROWER, micro_batch
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.run.output_facts import OutputFact
from tremula.ir.run.performance import MicroBatches

# -- inputs ----------------------------------------------------------------------------------------


def slice_order(options: Options) -> list[int]:
    """Which slice of its inputs each micro-batch reads, [iteration][accumulation][replica]."""
    n_iterations, n_accumulation = options.device_iterations, options.Training.gradient_accumulation
    size, n_replicas = options.input_group_size, options.replication_factor
    n_groups, n_steps = n_replicas // size, n_iterations * n_accumulation
    if CommGroupType(options.input_cgt) is CommGroupType.Orthogonal and size > 1:
        # Each group has a contiguous part of the data of the whole call.
        return [(r % n_groups) * n_steps + s for s in range(n_steps) for r in range(n_replicas)]
    return [s * n_groups + r // size for s in range(n_steps) for r in range(n_replicas)]


class InputCutter:
    """Cuts the inputs of each call the way those of the first call were cut."""

    def __init__(self, first: Sequence[Tensor], options: Options):
        self.order = slice_order(options)
        micro = [micro_batch(tensor, options) for tensor in first]
        self._sizes = [m.shape[0] if m.dim() else 0 for m in micro]
        self._is_whole = self.order == [0]
        self._in_turn = self.order == list(range(len(self.order)))

    def cut(self, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The inputs of every micro-batch, in the order they run; all are views."""
        if self._is_whole:
            return [tensors]
        if not tensors:
            return [()] * len(self.order)
        parts = [
            tensor.split(size) if size else (tensor,) * (max(self.order) + 1)
            for tensor, size in zip(tensors, self._sizes, strict=True)
        ]
        slices: list[Sequence[Tensor]] = list(zip(*parts, strict=True))
        return slices if self._in_turn else [slices[i] for i in self.order]


# -- outputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Which micro-batches an output mode returns."""

    mode: OutputMode
    period: int
    n_replicas: int
    n_per_iteration: int
    n_total: int

    @staticmethod
    def of(options: Options, mode: OutputMode | None = None, period: int = 1) -> "Selection":
        """The mode of the options, or another one for the same repetitions."""
        if mode is None:
            mode, period = OutputMode(options.output_mode), options.output_return_period
        n_replicas = options.replication_factor
        n_per_iteration = options.Training.gradient_accumulation * n_replicas
        n_total = options.device_iterations * n_per_iteration
        return Selection(mode, period, n_replicas, n_per_iteration, n_total)

    def wants(self, number: int) -> bool:
        """Whether the results of a micro-batch are returned; a sum returns none of them."""
        if self.mode is OutputMode.Final:
            return number >= self.n_total - self.n_replicas
        if self.mode is OutputMode.EveryN:
            return (number // self.n_per_iteration + 1) % self.period == 0
        return self.mode is OutputMode.All

    def returned(self) -> list[int]:
        """The micro-batches whose results leave the device; sums leave with the last ones."""
        if self.mode is OutputMode.Sum:
            return list(range(self.n_total - self.n_replicas, self.n_total))
        return [number for number in range(self.n_total) if self.wants(number)]

    def micro_batches(self) -> MicroBatches:
        return MicroBatches(self.n_total, self.n_replicas, self.returned())


class OutputGroup:
    """Outputs that are returned by the same mode: their range among all outputs, and properties."""

    def __init__(
        self,
        selection: Selection,
        begin: int,
        facts: list[OutputFact],
        narrower: Mapping[torch.dtype, torch.dtype] = NARROWER,
    ):
        self.selection = selection
        self.narrower = narrower  # types that are returned as others
        self.begin, self.end = begin, begin + len(facts)
        self.facts = facts
        self._wanted = frozenset(n for n in range(selection.n_total) if selection.wants(n))

    def wants(self, number: int) -> bool:
        return number in self._wanted


class OutputCollector:
    """Receives the outputs of every micro-batch of one call and joins those the modes want."""

    def __init__(self, groups: Sequence[OutputGroup]):
        self.groups = groups
        self._selected: list[list[list[Tensor]]] = [[] for _ in groups]
        self._sums: list[dict[int, list[Tensor]]] = [{} for _ in groups]

    def give(self, number: int, outputs: list[Tensor]) -> None:
        """Take the outputs of micro-batch `number`, counted [iteration][accumulation][replica]."""
        for index, group in enumerate(self.groups):
            if group.selection.mode is OutputMode.Sum:
                self._add(index, number, outputs[group.begin : group.end])
            elif group.wants(number):
                self._selected[index].append(outputs[group.begin : group.end])

    def _add(self, index: int, number: int, outputs: list[Tensor]) -> None:
        replica = number % self.groups[index].selection.n_replicas
        before = self._sums[index].get(replica)
        if before is None:
            # Copied first: a replayed graph overwrites its memory.
            self._sums[index][replica] = [output.clone() for output in outputs]
            return
        facts = self.groups[index].facts
        self._sums[index][replica] = [
            total if fact.is_constant else total + value
            for total, value, fact in zip(before, outputs, facts, strict=True)
        ]

    def results(self) -> list[list[Tensor]]:
        """The joined outputs of each group on the host, each a separate tensor."""
        return [self._joined_group(index, group) for index, group in enumerate(self.groups)]

    def _joined_group(self, index: int, group: OutputGroup) -> list[Tensor]:
        selected = self._selected[index]
        if group.selection.mode is OutputMode.Sum:
            selected = [self._sums[index][r] for r in range(group.selection.n_replicas)]
        if not selected:  # EveryN with a period longer than the call
            return [_none_of(fact, group.narrower) for fact in group.facts]
        return [
            _returned(
                parts[0] if fact.is_constant else _joined(parts), fact.must_copy, group.narrower
            )
            for parts, fact in zip(zip(*selected, strict=True), group.facts, strict=True)
        ]


def _none_of(fact: OutputFact, narrower: Mapping[torch.dtype, torch.dtype]) -> Tensor:
    """What is returned if a mode wants none of the micro-batches."""
    return torch.empty((0, *fact.shape[1:]), dtype=narrower.get(fact.dtype, fact.dtype))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Along the first dimension; scalars become a vector when there are several."""
    if len(parts) == 1:
        return parts[0]
    return torch.stack(list(parts)) if parts[0].dim() == 0 else torch.cat(list(parts))


def _returned(
    tensor: Tensor, must_copy: bool, narrower: Mapping[torch.dtype, torch.dtype]
) -> Tensor:
    """A host tensor in a type the device has, with its own memory, whose `backward()` raises."""
    host = tensor.detach().to("cpu", narrower.get(tensor.dtype, tensor.dtype))
    if must_copy and host.data_ptr() == tensor.data_ptr():
        host = host.clone()
    host.backward = _reject_backward
    return host


def _reject_backward(*_args: object, **_kwargs: object) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a"
        " trainingModel, the backwards pass is performed automatically when invoking the model. If"
        " you're using an inferenceModel, you should use a trainingModel instead."
    )
