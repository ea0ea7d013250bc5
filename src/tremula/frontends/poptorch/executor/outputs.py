"""Results of the micro-batches of a call, selected and joined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.frontends.poptorch.enums import OutputMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import NARROWER
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.output_facts import OutputFact
from tremula.ir.run.performance import MicroBatches


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


def returned_by(options: Options) -> frozenset[int] | None:
    """The micro-batches of a call of which some output is read; None: all."""
    selections = [Selection.of(options)]
    for anchored in options.anchored_tensors.values():
        mode, period = anchored.output_mode, anchored.output_return_period
        selections.append(Selection.of(options, mode, period))
    if any(selection.mode is OutputMode.Sum for selection in selections):
        return None
    return frozenset(number for selection in selections for number in selection.returned())


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
