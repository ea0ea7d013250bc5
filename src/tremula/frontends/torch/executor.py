"""trainingModel, inferenceModel and PoplarExecutor: a module that runs as a compiled program."""

import datetime
from typing import Any

import torch
from torch import Tensor, nn

from tremula.frontends.torch.arg_parsers import ArgsParser, ParsedArgs, micro_batch
from tremula.frontends.torch.compiled import CompiledModel
from tremula.frontends.torch.enums import OutputMode
from tremula.frontends.torch.exceptions import createPoptorchError
from tremula.frontends.torch.logging import LOGGER
from tremula.frontends.torch.optimizer_tracker import OptimizerTracker
from tremula.frontends.torch.options import Options
from tremula.frontends.torch.outputs import OutputCollector, cut_inputs
from tremula.frontends.torch.placement import _is_model, check_inference_accumulation
from tremula.ir.capture import held_tensors
from tremula.ir.settings import host_settings
from tremula.ir.step import BUFFER, PARAMETER


class PoplarExecutor:
    """Compiles a module on its first call and runs it; weights live on the host and the device."""

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        training: bool,
        optimizer: torch.optim.Optimizer | None = None,
    ):
        self._model = model
        self._options = options
        self._training = training
        self._optimizer = optimizer
        self._tracker = OptimizerTracker(relax_checks=options.relax_optimizer_checks)
        self._parser = ArgsParser(model)
        self._compiled: CompiledModel | None = None
        self._dirty_host_weights = False

    @property
    def model(self) -> nn.Module:
        return self._model

    @property
    def options(self) -> Options:
        return self._options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run one call's worth of micro-batches; the first call compiles."""
        parsed = self._parser.parse(args, kwargs)
        if self._compiled is None:
            self._compile(parsed)
        compiled = self._compiled
        parsed.check_same(compiled.first)
        return self._run(compiled, parsed)

    def _run(self, compiled: CompiledModel, parsed: ParsedArgs) -> Any:  # noqa: ANN401
        options = self._options
        collector = OutputCollector(options, compiled.constant_outputs)
        tensors = [t.float() if t.dtype is torch.float64 else t for t in parsed.tensors]
        inputs = cut_inputs(tensors, options, lambda t: _size(micro_batch(t, options)))
        compiled.session.run(inputs, collector.give)
        if self._training:
            self._dirty_host_weights = True
        return compiled.step.rebuild_outputs(collector.results())

    def compile(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Compile for arguments like these without running."""
        if self._compiled is not None:
            LOGGER.warning("Ignoring call to compile() as the model is already compiled")
            return
        self._compile(self._parser.parse(args, kwargs))

    def _compile(self, parsed: ParsedArgs) -> None:
        rule = None
        if self._training:
            named = [(held.name, held.tensor) for held in held_tensors(self._model, PARAMETER)]
            rule = self._tracker.start(self._optimizer, named)
        settings = host_settings()
        on_tiles = _is_model(self._options) or settings.tiles == "run"
        self._compiled = CompiledModel(self._model, parsed, self._options, rule, settings, on_tiles)
        self._write_all()

    def isCompiled(self) -> bool:  # noqa: N802
        return self._compiled is not None

    def destroy(self) -> None:
        """Flush the weights and forget the program; the next call compiles again."""
        if self._compiled is not None:
            self.copyWeightsToHostIfNeeded()
            self._compiled = None

    # -- weights -----------------------------------------------------------------------------------

    def _write_all(self) -> None:
        self.copyWeightsToDevice()
        compiled = self._compiled
        if compiled.rule is not None:
            held = {h.name: h.tensor for h in held_tensors(self._model, PARAMETER)}
            trained = [held[name] for name in compiled.rule.names]
            compiled.session.write_states(compiled.rule.initial_state(trained))
            compiled.session.set_hyper(compiled.rule.hyper_values(self._optimizer))

    def copyWeightsToDevice(self) -> None:  # noqa: N802
        """Host → device, without fetching first."""
        session = self._needs_compiled().session
        parameters = [held.tensor for held in held_tensors(self._model, PARAMETER)]
        buffers = [held.tensor for held in held_tensors(self._model, BUFFER)]
        session.write_weights(parameters, buffers)

    def copyWeightsToHost(self) -> None:  # noqa: N802
        """Device → host, always."""
        parameters, buffers = self._needs_compiled().session.read_weights()
        with torch.no_grad():
            for kind, values in ((PARAMETER, parameters), (BUFFER, buffers[0])):
                for held, value in zip(held_tensors(self._model, kind), values, strict=True):
                    held.tensor.data.copy_(value)
        self._dirty_host_weights = False

    def copyWeightsToHostIfNeeded(self) -> bool:  # noqa: N802
        """Device → host if the device is newer; whether it was."""
        if not self._dirty_host_weights:
            return False
        self._dirty_host_weights = False
        self.copyWeightsToHost()
        return True

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: N802
        """Use the values an optimiser has now; without this call a change is not seen."""
        self._optimizer = optimizer
        if self._compiled is not None:
            changed = self._tracker.changed(optimizer)
            if changed is not None:
                self._compiled.session.set_hyper(changed)

    def _needs_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._compiled

    # -- what the machine would do -----------------------------------------------------------------

    def cycleCount(self) -> int:  # noqa: N802
        """Cycles the machine takes for one call, from the tile program."""
        compiled = self._needs_compiled()
        return compiled.tiles.engine().report().total_cycles

    def compilationTime(self) -> datetime.timedelta:  # noqa: N802
        return datetime.timedelta(seconds=self._needs_compiled().seconds)


def _size(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.dim() else 1


def trainingModel(  # noqa: N802
    model: nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model whose calls train: forward, backward and weight update, all compiled."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    options = (options or Options()).clone()
    if options.defaultOutputMode():
        options.outputMode(OutputMode.Final)
    options._freeze()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(  # noqa: N802
    model: nn.Module | PoplarExecutor, options: Options | None = None
) -> PoplarExecutor:
    """A model whose calls compute forward only."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    options = (options or Options()).clone()
    check_inference_accumulation(options)
    if options.defaultOutputMode():
        options.outputMode(OutputMode.All)
    options._freeze()
    return PoplarExecutor(model, options, training=False)
