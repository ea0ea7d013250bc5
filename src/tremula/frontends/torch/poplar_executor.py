"""PoplarExecutor: a module that runs as a compiled program."""

import datetime as dt
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from tremula.base.tracing import is_tracing, sample, span
from tremula.frontends.torch import performance, saving
from tremula.frontends.torch.arg_parsers import NARROWER, ArgsParser, ParsedArgs
from tremula.frontends.torch.attachment import Attachment
from tremula.frontends.torch.blocks import module_repr
from tremula.frontends.torch.compiled import CompiledModel
from tremula.frontends.torch.enums import CommGroupType, ConnectionType, VariableRetrievalMode
from tremula.frontends.torch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.torch.logging import LOGGER, set_max_repeats
from tremula.frontends.torch.loss_scaling import automatic_loss_scaling
from tremula.frontends.torch.names import LOSS_SCALE, graph_as_json
from tremula.frontends.torch.optimizer_state import OptimizerState
from tremula.frontends.torch.optimizer_tracker import OptimizerTracker
from tremula.frontends.torch.options import Options
from tremula.frontends.torch.outputs import OutputCollector
from tremula.frontends.torch.placement import _is_model
from tremula.frontends.torch.popart_options import validate_options
from tremula.frontends.torch.profile_folder import trace_if_profiled, write_profile
from tremula.frontends.torch.randomness import restore, state_of
from tremula.frontends.torch.replica_weights import Grouping
from tremula.frontends.torch.tile_cache import StoredTileProgram
from tremula.frontends.torch.weights import (
    ParameterOfModel,
    Sources,
    unwrap,
    wrap,
)
from tremula.ir.capture import held_tensors
from tremula.ir.settings import host_settings
from tremula.ir.step import PARAMETER

_NOT_COMPILED = "Model has not been compiled or has been destroyed."


class PoplarExecutor:
    """Compiles a module on its first call and runs it; weights live on the host and the device.

    Attributes it does not have are those of the module.
    """

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
        self._tracker = OptimizerTracker(
            relax_checks=options.relax_optimizer_checks,
            automatic_scaling=automatic_loss_scaling(options),
        )
        self._parser = ArgsParser(model)
        self._compiled: CompiledModel | None = None
        self._attachment: Attachment | None = None
        self._optimizer_state: OptimizerState | None = None
        self._sources = Sources(model)
        self._seen_versions: dict[int, int] = {}  # of the training models whose weights are used
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._rng_state: list[int] | None = None  # to start with
        self._anchored: dict[str, Tensor] = {}
        self._groupings: dict[int, Grouping] = {}  # by id of the parameter
        self._n_runs = 0
        self._channel = "poptorch.trainingModel" if training else "poptorch.inferenceModel"
        trace_if_profiled(options)
        if training:
            wrap(model, self)

    @property
    def model(self) -> nn.Module:
        """The module that was wrapped."""
        return self._model

    @property
    def options(self) -> Options:
        """The options in use; they can no longer change."""
        return self._options

    @property
    def rng_state(self) -> list[int]:
        """The seed and the state of the device's random numbers; it can be set."""
        if self._compiled is None and self._rng_state is not None:
            return list(self._rng_state)
        return state_of(self._needs_compiled().random)

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        if self._compiled is None:
            self._rng_state = list(state)
        else:
            restore(self._compiled.random, list(state))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        model = self.__dict__.get("_model")
        if model is None:
            raise AttributeError(f"PoplarExecutor has no attribute {name!r}")
        value = getattr(model, name)
        if isinstance(value, nn.Parameter):
            return ParameterOfModel(value, self._group_replicas)
        return value

    def _group_replicas(self, parameter: Tensor, group_type: int, shards: int, mode: int) -> None:
        """Give groups of replicas their own values of a parameter; see replica_weights.py."""
        if parameter.dim() == 0:
            raise createPoptorchError(
                "Scalars cannot be passed as per-replica weight tensor values"
            )
        if self._compiled is not None:
            raise createPoptorchError("replicaGrouping must be called before compiling.")
        self._groupings.pop(id(parameter), None)
        if group_type != CommGroupType.All:
            grouping = Grouping(CommGroupType(group_type), shards, VariableRetrievalMode(mode))
            self._groupings[id(parameter)] = grouping

    def __repr__(self) -> str:
        return module_repr(self._model)

    # -- running -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run one call's worth of micro-batches; the first call compiles."""
        with span(self._channel, "call"):
            compiled = self._compiled
            if compiled is None:
                self._check_online()
                parsed = self._parser.parse(args, kwargs)
                compiled = self._compile(parsed)
            else:
                parsed = self._parser.parse_again(args, kwargs, compiled.first)
            if not self.isAttachedToDevice():
                self._attach(compiled)
            if self._optimizer_state is not None:
                self._optimizer_state.before_run()
            else:
                self._follow_training()
            return self._run(compiled, parsed)

    def _run(self, compiled: CompiledModel, parsed: ParsedArgs) -> Any:  # noqa: ANN401
        tensors = parsed.tensors
        if compiled.wide_inputs or compiled.moves_inputs is not None:
            tensors = _as_device_has_them(tensors, compiled)
        inputs = compiled.cutter.cut(tensors)
        collector = OutputCollector(compiled.output_groups)
        # What the device would do in this stretch is in the report of that name.
        traced = span(self._channel, "run", report=self._name)
        with poptorch_errors(), traced, compiled.random.drawing():
            compiled.session.run(inputs, collector.give)
        self._dirty_host_weights = self._training
        if self._optimizer is not None:
            # A schedule of torch's warns where its optimiser has not taken a step before it.
            self._optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        self._n_runs += 1
        if compiled.writes_inputs:
            _write_back(parsed.originals, tensors)
        outputs, *anchored = collector.results()
        if compiled.loss_output is not None and is_tracing():
            sample("loss", self._name, float(outputs[compiled.loss_output].mean()))
        if compiled.anchors:
            self._keep_anchors(compiled, [tensor for (tensor,) in anchored])
        return compiled.step.rebuild_outputs(outputs)

    def _keep_anchors(self, compiled: CompiledModel, outputs: list[Tensor]) -> None:
        values = iter(outputs)
        for anchor in compiled.anchors:
            if anchor.is_output:
                self._anchored[anchor.short_name] = next(values)
            elif anchor.long_name == LOSS_SCALE:
                assert self._optimizer_state is not None, "only training scales a loss"
                self._anchored[anchor.short_name] = self._optimizer_state.loss_scaling()
            else:
                index = compiled.names.updated[anchor.long_name]
                value = compiled.session.read_weights()[0][index]
                self._anchored[anchor.short_name] = value.detach().to("cpu", copy=True)

    def _follow_training(self) -> None:
        """An inference model uses what a training model of the same module has learnt."""
        for owner in self._sources.owners():
            owner.copyWeightsToHostIfNeeded()
            if self._seen_versions.get(id(owner)) != owner._host_weights_version:
                self.copyWeightsToDevice()
                self._seen_versions[id(owner)] = owner._host_weights_version

    # -- compiling ---------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Compile for arguments like these without running."""
        if self._compiled is not None:
            LOGGER.warning("Call to compile() ignored: the model is already compiled")
            return
        self._compile(self._parser.parse(args, kwargs))

    def _compile(
        self, parsed: ParsedArgs, stored: StoredTileProgram | None = None
    ) -> CompiledModel:
        with span(self._channel, "compile"):
            compiled = self._compile_step(parsed, stored)
        write_profile(compiled, self._name)
        return compiled

    def _compile_step(self, parsed: ParsedArgs, stored: StoredTileProgram | None) -> CompiledModel:
        options = self._options
        set_max_repeats(options.max_repeat_logs)
        validate_options(options.toDict())
        attachment = Attachment(options)
        self._parser.narrowed(parsed)  # warns about types the device does not have
        rule = None
        if self._training:
            wrap(self._model, self)
            named = [(held.name, held.tensor) for held in held_tensors(self._model, PARAMETER)]
            rule = self._tracker.start(self._needs_optimizer(), named)
        settings = host_settings()
        on_tiles = _is_model(options) or settings.tiles == "run"
        groupings = {
            held.name: self._groupings[id(held.tensor)]
            for held in held_tensors(self._model, PARAMETER)
            if id(held.tensor) in self._groupings
        }
        compiled = CompiledModel(
            self._model,
            parsed,
            options,
            rule,
            settings,
            on_tiles,
            stored=stored,
            groupings=groupings,
        )
        if self._rng_state is not None:
            restore(compiled.random, self._rng_state)
        self._compiled, self._attachment, self._n_runs = compiled, attachment, 0
        self._optimizer_state = None
        if attachment.kind is ConnectionType.Always:
            self._attach(compiled)
        return compiled

    @cached_property
    def _name(self) -> str:
        """Under which reports and traces know the model."""
        if self._options.exists("model_name"):
            return self._options.model_name
        return "training" if self._training else "inference"

    def compileAndExport(  # noqa: N802
        self,
        filename: str,
        *args: Any,  # noqa: ANN401
        export_model: bool = True,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Compile for arguments like these and save the result."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled model to a file; with `export_model` also the module and optimiser."""
        compiled = self._needs_compiled()
        self._flush()
        optimizer = self._optimizer if self._training else None
        state = self.rng_state if save_rng_state else None
        saving.save(filename, compiled, self._model, optimizer, state, export_model=export_model)

    def loadExecutable(self, filename: str) -> None:  # noqa: N802
        """Take what `save` wrote for this model instead of compiling; no code of the file runs."""
        if self._compiled is not None:
            raise createPoptorchError("The model is already compiled: call destroy() first.")
        args, kwargs, stored = saving.load_executable(filename, training=self._training)
        self._compile(self._parser.parse(args, kwargs), stored)

    def isCompiled(self) -> bool:  # noqa: N802
        """Whether there is a program."""
        return self._compiled is not None

    def destroy(self) -> None:
        """Flush the weights and forget the program; the next call compiles again."""
        if self._compiled is not None:
            self._flush()
            if self._optimizer_state is not None and self._optimizer_state.own is not None:
                self._optimizer_state.own._fetch = None
            self._device().release()
            write_profile(self._compiled, self._name)
            self._compiled = self._attachment = self._optimizer_state = None
        self._rng_state = None
        if self._training:
            unwrap(self._model)

    def _flush(self) -> None:
        """Everything the device has that is newer than what is here."""
        self.copyWeightsToHostIfNeeded()
        if self._optimizer_state is not None:
            self._optimizer_state.read_back()

    def _needs_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError(_NOT_COMPILED)
        return self._compiled

    # -- devices -----------------------------------------------------------------------------------

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

    def _needs_optimizer(self) -> torch.optim.Optimizer:
        assert self._optimizer is not None, "trainingModel gives every training model an optimiser"
        return self._optimizer

    def _attach(self, compiled: CompiledModel) -> None:
        self._device().attach()
        if not self._training:
            for owner in self._sources.owners():
                owner.copyWeightsToHostIfNeeded()
                self._seen_versions[id(owner)] = owner._host_weights_version
        self.copyWeightsToDevice()
        if self._training and self._optimizer_state is None:
            self._optimizer_state = OptimizerState(self._needs_optimizer(), compiled)
            self._optimizer_state.write_first()

    def _check_online(self) -> None:
        Attachment(self._options).check_online()

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
        self._dirty_host_weights = False
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
            changed = self._tracker.changed(optimizer)
            if self._optimizer_state is not None:
                self._optimizer_state.follow(optimizer)
                if changed is not None:
                    self._optimizer_state.set_hyper(changed)
        self._optimizer = optimizer

    # -- names -------------------------------------------------------------------------------------

    def getTensorNames(self) -> list[str]:  # noqa: N802
        """Names of all tensors that can be anchored."""
        assert self._compiled is not None, (
            "Tensor names are only available after the model has been compiled."
        )
        return self._compiled.names.all(self._training)

    def getAnchoredTensor(self, short_name: str) -> Tensor:  # noqa: N802
        """The value of an anchored tensor in the last call."""
        anchored = self._options.anchored_tensors
        assert short_name in anchored, (
            f"{short_name!r} is not anchored: call Options.anchorTensor; anchored are "
            f"{', '.join(anchored) or 'none'}"
        )
        assert short_name in self._anchored, f"{short_name!r} is known after the first call"
        return self._anchored[short_name]

    def _debugGetPopartIR(self) -> str:  # noqa: N802
        return graph_as_json(self._needs_compiled().step)

    # -- what the machine would do -----------------------------------------------------------------

    def cycleCount(self) -> int:  # noqa: N802
        """Cycles the machine takes for one call, from the tile program."""
        if not self._options._Popart.options["instrumentWithHardwareCycleCounter"]:
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if _is_model(self._options):
            raise createPoptorchError(
                "Cycle count logging is only supported on actual IPU hardware."
            )
        if self._compiled is None or self._n_runs == 0:
            raise createPoptorchError(
                "Please run the model at least once before obtaining cycle count."
            )
        return self._timing().total_cycles

    def _timing(self) -> performance.CallTiming:
        compiled = self._needs_compiled()
        return compiled.tiles.timing(has_run=compiled.run_on_tiles)

    def compilationTime(self) -> dt.timedelta:  # noqa: N802
        """How long the last compilation took, with that of the tile program if there was one."""
        if self._compiled is None:
            raise createPoptorchError(
                "Please compile the model before trying to obtain its compilation time."
            )
        if not self._options.show_compilation_progress_bar:
            raise createPoptorchError(
                "Please set showCompilationProgressBar option to True to obtain the compilation "
                "time."
            )
        return dt.timedelta(seconds=self._compiled.total_seconds)

    def getPerfCounters(self) -> performance.Counters:  # noqa: N802
        """When inputs and outputs of a call move, modelled: seconds per tensor and micro-batch."""
        is_synthetic = self._options._Popart.options.get("syntheticDataMode", 0) != 0
        if self._compiled is None or self._n_runs == 0 or is_synthetic:
            return performance.no_counters()
        compiled = self._compiled
        return performance.perf_counters(self._timing(), compiled.selection, compiled.n_outputs)

    def getLatency(self) -> performance.Latency:  # noqa: N802
        """From input to output of a micro-batch: least, most and average seconds."""
        return self._latency(performance.ROUND_TRIP)

    def getHostIpuLatency(self) -> performance.Latency:  # noqa: N802
        """The same for the way to the machine."""
        return self._latency(performance.HOST_TO_IPU)

    def getComputeLatency(self) -> performance.Latency:  # noqa: N802
        """The same for computing."""
        return self._latency(performance.COMPUTE)

    def getIpuHostLatency(self) -> performance.Latency:  # noqa: N802
        """The same for the way back."""
        return self._latency(performance.IPU_TO_HOST)

    def _latency(self, events: tuple) -> performance.Latency:
        counters = self.getPerfCounters()
        if self._compiled is None:
            return 0.0, 0.0, 0.0
        return performance.latency_between(counters, self._compiled.selection, *events)


def _as_device_has_them(tensors: list[Tensor], compiled: CompiledModel) -> list[Tensor]:
    found = list(tensors)
    for i in compiled.wide_inputs:
        found[i] = found[i].to(NARROWER[found[i].dtype])
    if compiled.moves_inputs is not None:
        found = [tensor.to(compiled.moves_inputs) for tensor in found]
    return found


def _write_back(originals: list[Tensor], tensors: list[Tensor]) -> None:
    """What a model did to its inputs happens to the caller's tensors."""
    with torch.no_grad():
        for original, tensor in zip(originals, tensors, strict=True):
            if original is not tensor:
                original.copy_(tensor)
