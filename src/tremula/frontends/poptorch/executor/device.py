"""The device of a PoplarExecutor, and the copies of weights and optimiser that live on it."""

from typing import Any

import torch
from torch import nn

from tremula.base.tracing import span
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.attachment import Attachment
from tremula.frontends.poptorch.executor.base import ExecutorBase
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.executor.weights import Sources
from tremula.frontends.poptorch.optim.loss_scaling import automatic_loss_scaling
from tremula.frontends.poptorch.optim.state import OptimizerState
from tremula.frontends.poptorch.optim.tracker import OptimizerTracker
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.capture.capture import held_tensors
from tremula.ir.step import PARAMETER


class ExecutorDevice(ExecutorBase):
    """Takes and leaves a device; host and device each have a copy of the weights."""

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        training: bool,
        optimizer: torch.optim.Optimizer | None,
    ):
        super().__init__(model, options, training)
        self._attachment: Attachment | None = None
        self._optimizer = optimizer
        self._optimizer_state: OptimizerState | None = None
        self._tracker = OptimizerTracker(
            relax_checks=options.relax_optimizer_checks,
            automatic_scaling=automatic_loss_scaling(options),
        )
        self._sources = Sources(model)
        self._seen_versions: dict[int, int] = {}  # of the training models whose weights are used
        self._dirty_host_weights = False
        self._host_weights_version = 0

    def isAttachedToDevice(self) -> bool:  # noqa: N802
        """Whether the model holds its device."""
        return self._attachment is not None and self._attachment.is_attached

    def attachToDevice(self) -> None:  # noqa: N802
        """Take the device again: weights go there."""
        self._attach(self._needs_compiled())

    def detachFromDevice(self) -> None:  # noqa: N802
        """Leave the device to other models; weights, optimiser and random numbers are kept."""
        self._needs_compiled()
        if self.isAttachedToDevice():
            self._flush()
        self._device().detach()

    def _device(self) -> Attachment:
        assert self._attachment is not None, "a compiled model has an attachment"
        return self._attachment

    def _attach(self, compiled: CompiledModel) -> None:
        self._device().attach()
        if not self._training:
            self._fetch_trained()
        self.copyWeightsToDevice()
        if self._training and self._optimizer_state is None:
            self._optimizer_state = OptimizerState(self._needs_optimizer(), compiled)
            self._optimizer_state.write_first()

    def _needs_optimizer(self) -> torch.optim.Optimizer:
        assert self._optimizer is not None, "trainingModel gives every training model an optimiser"
        return self._optimizer

    def _follow_training(self) -> None:
        """An inference model uses what training models of the same module have learnt."""
        if self._fetch_trained():
            self.copyWeightsToDevice()

    def _fetch_trained(self) -> bool:
        """Bring weights in training to the host; whether they changed since the last time."""
        owners = self._sources.owners()
        for owner in owners:
            owner.copyWeightsToHostIfNeeded()
        versions = {id(owner): owner._host_weights_version for owner in owners}
        seen, self._seen_versions = self._seen_versions, versions
        return any(seen.get(owner) != version for owner, version in versions.items())

    def _flush(self) -> None:
        """Everything the device has that is newer than what is here."""
        self.copyWeightsToHostIfNeeded()
        if self._optimizer_state is not None:
            self._optimizer_state.read_back()

    # -- weights -----------------------------------------------------------------------------------

    def copyWeightsToDevice(self) -> None:  # noqa: N802
        """Host → device, without fetching first: what was trained since is overwritten."""
        compiled = self._needs_compiled()
        with span(self._channel, "copyWeightsToDevice"):
            compiled.write_weights()

    def copyNamedBuffersToDevice(self) -> None:  # noqa: N802
        """Host → device for the buffers named by `Options.updatableNamedBuffers`."""
        compiled = self._needs_compiled()
        names = self._options._Popart.options.get("updatableNamedBuffers", [])
        if not names:
            raise createPoptorchError(
                "No named buffers marked as updatable via updatableNamedBuffers option"
            )
        _, buffers = compiled.weights.values()
        indices = compiled.weights.buffer_indices(names)
        compiled.session.write_buffers({index: buffers[index] for index in indices})

    def copyWeightsToHost(self) -> None:  # noqa: N802
        """Device → host, always."""
        compiled = self._needs_compiled()
        with span(self._channel, "copyWeightsToHost"):
            compiled.weights.store(*compiled.read_weights())
        self._host_weights_version += 1
        self._dirty_host_weights = False

    def copyWeightsToHostIfNeeded(self) -> bool:  # noqa: N802
        """Device → host if the device is newer; whether it was."""
        if not self._dirty_host_weights:
            return False
        self._dirty_host_weights = False  # first: storing reads the weights, which asks again
        self.copyWeightsToHost()
        return True

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> Any:  # noqa: ANN401
        """The module's own, and the device gets the values if it is attached."""
        result = self._model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return result

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: N802
        """Use the values an optimiser has now; without this call a change is not seen."""
        if self._compiled is not None and self._training:
            named = [(held.name, held.tensor) for held in held_tensors(self._model, PARAMETER)]
            changed = self._tracker.changed(optimizer, named)
            if self._optimizer_state is not None:
                self._optimizer_state.follow(optimizer)
                if changed is not None:
                    self._optimizer_state.set_hyper(changed)
        self._optimizer = optimizer
