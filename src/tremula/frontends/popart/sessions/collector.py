"""Anchors gathered while a step runs, and what the optimiser holds when it is over."""

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from tremula.frontends.popart import names
from tremula.frontends.popart.data_flow import DataFlow, PyStepIO, PyStepIOCallback
from tremula.frontends.popart.enums import ReductionType
from tremula.frontends.popart.exceptions import poplar_application_runtime_error
from tremula.frontends.popart.optimisers.formulas import Repeats, compound_numbers
from tremula.frontends.popart.sessions.anchors import AnchorKinds, weight_of
from tremula.frontends.popart.sessions.buffers import AnchorValues, array_of
from tremula.frontends.popart.sessions.checks import missing_anchor
from tremula.frontends.popart.sessions.program import SessionProgram
from tremula.frontends.popart.sessions.step import StepPlan
from tremula.frontends.popart.tensor_info import TensorInfo
from tremula.ir.repetition import Repetition


class Collector:
    """Gathers anchors while a step runs."""

    def __init__(
        self,
        flow: DataFlow,
        kinds: AnchorKinds,
        repetition: Repetition,
        info: Callable[[str], TensorInfo],
    ):
        self.kinds, self.repetition = kinds, repetition
        self.anchors = {
            id: AnchorValues(id, flow.art(id), info(id), repetition) for id in flow.anchors()
        }

    def take(self, plan: StepPlan) -> Callable[[int, list[Tensor]], None]:
        """What a session calls with the results of each micro-batch."""
        forward = [(i, id) for i, id in enumerate(plan.wanted) if id in self.kinds.forward]
        n = len(plan.wanted)
        of_gradient = {id: n + i for i, id in enumerate(plan.gradients)}
        gradients = [(i, names.GRADIENT + id) for id, i in of_gradient.items()]
        gradients = [(i, id) for i, id in gradients if id in self.anchors]
        of_weight = {id: i for i, id in enumerate(plan.wanted)}
        trained = self.kinds.weights if plan.is_training else ()
        before = [(of_weight[id], id) for id in trained if self._is_sent_before_update(id)]
        weights = [
            (of_weight[weight_of(id)], id) for id in trained if not self._is_sent_before_update(id)
        ]
        totals: dict[tuple[str, int], np.ndarray] = {}

        def give(number: int, outputs: list[Tensor]) -> None:
            if plan.is_aborted(outputs):
                raise poplar_application_runtime_error("Abort Program: an Abort stopped the step")
            for place, id in (*forward, *gradients, *before):
                self.anchors[id].put(number, array_of(outputs[place]))
            batch, step, replica = self.repetition.index_of(number)
            for id in self.kinds.accumulators:
                gradient = array_of(outputs[of_gradient[weight_of(id)]])
                totals[id, replica] = gradient + (totals[id, replica] if step else 0)
                self.anchors[id].put(number, totals[id, replica])
            if batch and not step:  # before this batch is after the one before it
                for place, id in weights:
                    self._put_all(id, batch - 1, replica, array_of(outputs[place]))

        return give

    def _is_sent_before_update(self, id: str) -> bool:
        """Weights are sent with each micro-batch: if several make an update, before that."""
        return self.repetition.n_accumulation > 1 and id == weight_of(id)

    def finish(self, program: SessionProgram) -> None:
        """What the device holds when the step is over."""
        last, n_replicas = self.repetition.n_iterations - 1, self.repetition.n_replicas
        if self.kinds.weights:
            self._finish_weights(program)
        for id in self.kinds.of_optimiser:
            value = value_of_optimiser(id, program)
            for batch in range(last + 1):
                for replica in range(n_replicas):
                    self._put_all(id, batch, replica, value)

    def _finish_weights(self, program: SessionProgram) -> None:
        values = program.weights_on_device()
        n_replicas, n_batches = self.repetition.n_replicas, self.repetition.n_iterations
        first = n_batches - 1 if program.rule is not None else 0
        for id in self.kinds.weights:
            if program.rule is not None and self._is_sent_before_update(id):
                continue
            grouping = program.model.groupings.get(weight_of(id))
            value = values[weight_of(id)]
            for replica in range(n_replicas):
                own = value if grouping is None else grouping.slice_of(value, replica, n_replicas)
                for batch in range(first, n_batches):
                    self._put_all(id, batch, replica, array_of(own))

    def _put_all(self, id: str, batch: int, replica: int, value: np.ndarray) -> None:
        """One value for all micro-batches of a batch on a replica."""
        n_steps, n_replicas = self.repetition.n_accumulation, self.repetition.n_replicas
        for step in range(n_steps):
            number = (batch * n_steps + step) * n_replicas + replica
            self.anchors[id].put(number, value)

    def give(self, stepio: PyStepIO | PyStepIOCallback) -> None:
        """Hand all anchors to the script."""
        for anchor in self.anchors.values():
            anchor.give(stepio)


def value_of_optimiser(id: str, program: SessionProgram) -> np.ndarray:
    """A state of the optimiser, or one of its numbers, by name."""
    states = program.states()
    if id in states:
        return states[id]
    numbers = optimiser_numbers(program)
    if id in numbers:
        return np.float32(numbers[id]) * np.ones((), np.float32)
    known = [*states, *numbers]
    raise missing_anchor(id, known)


def optimiser_numbers(program: SessionProgram) -> Mapping[str, float]:
    """The variable numbers of an optimiser by the names that PopART gives them."""
    rule, optimizer = program.rule, program.optimizer
    assert rule is not None, "only training has a rule"
    assert optimizer is not None, "and an optimiser"
    values = program.program.session.read_hyper()
    scaling = values[-1] if rule.loss_scaling is None else rule.loss_scaling
    result = {f"{names.LOSS_SCALING}FLOAT": float(scaling)}
    groups = ["", *(id for id in program.trained if id in optimizer.specific)]
    for group, id in enumerate(groups):
        suffix = f"___specific___{id}" if id else "___default___FLOAT"
        hyper = rule.hyperparameters(group, values)
        numbers = {_NUMBER_NAMES.get(name, name): value for name, value in hyper.items()}
        if rule.formula.kind.startswith("popart SGD"):
            numbers |= compound_numbers(rule.formula.kind, hyper, _repeats(program, scaling))
        result |= {f"{name}{suffix}": float(value) for name, value in numbers.items()}
    return result


def _repeats(program: SessionProgram, loss_scaling: float) -> Repeats:
    options = program.options
    is_mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    n_gradients = options.n_accumulation * options.n_replicas
    return Repeats(loss_scaling, options.n_replicas, n_gradients if is_mean else 1)


_NUMBER_NAMES = {"beta1": "adamBeta1", "beta2": "adamBeta2", "eps": "adamEps"}


def info_of_tensor(value: Tensor) -> TensorInfo:
    """Type and shape of a tensor."""
    kind = str(value.dtype).removeprefix("torch.")
    named = {"bfloat16": "BFLOAT16"}.get(kind)
    return TensorInfo(named or kind, [int(n) for n in value.shape])
