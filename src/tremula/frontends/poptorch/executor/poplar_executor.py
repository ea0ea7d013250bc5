"""PoplarExecutor: a module that runs as a compiled program."""

import datetime as dt
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tremula.base.lazy import load_front_ends_of_libraries
from tremula.base.tracing import is_tracing, sample, span
from tremula.frontends.poptorch.blocks import module_repr
from tremula.frontends.poptorch.enums import CommGroupType, ConnectionType, VariableRetrievalMode
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor import saving
from tremula.frontends.poptorch.executor.attachment import Attachment
from tremula.frontends.poptorch.executor.compiled import CompiledModel, compile_model
from tremula.frontends.poptorch.executor.outputs import OutputCollector
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.frontends.poptorch.executor.profile_folder import trace_if_profiled, write_profile
from tremula.frontends.poptorch.executor.weights import ParameterOfModel, Sources, unwrap, wrap
from tremula.frontends.poptorch.inputs.arguments import ArgsParser, ParsedArgs
from tremula.frontends.poptorch.logging import LOGGER, set_max_repeats
from tremula.frontends.poptorch.optim.names import ipu_param_names
from tremula.frontends.poptorch.optim.settings import settings_of
from tremula.frontends.poptorch.optim.state import OptimizerState
from tremula.frontends.poptorch.optim.tracker import OptimizerTracker, automatic_loss_scaling
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.popart import validate_options
from tremula.frontends.shared.program import Program, write_back
from tremula.ir.capture.capture import held_tensors
from tremula.ir.optim.grouped_rule import GroupedRule
from tremula.ir.run import performance
from tremula.ir.run.generators import restore, state_of
from tremula.ir.run.replica_groups import Grouping
from tremula.ir.run.tensor_names import LOSS_SCALE, graph_as_json
from tremula.ir.settings import host_settings
from tremula.ir.step import PARAMETER

if TYPE_CHECKING:  # the tile side loads slowly, and only those who use it pay
    from tremula.ir.run.tile_cache import StoredTileProgram
    from tremula.ir.run.tile_program import TileProgram


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
        load_front_ends_of_libraries()  # whose objects models take
        self._model = model
        self._options = options
        self._training = training
        self._channel = "poptorch.trainingModel" if training else "poptorch.inferenceModel"
        self._parser = ArgsParser(model)
        self._groupings: dict[int, Grouping] = {}  # by id of the parameter
        # The program, and what belongs to it.
        self._compiled: CompiledModel | None = None
        self._attachment: Attachment | None = None
        self._n_runs = 0
        self._anchored: dict[str, Tensor] = {}
        self._rng_state: list[int] | None = None  # to start with
        # The optimiser here, and what the device has of it.
        self._optimizer = optimizer
        self._optimizer_state: OptimizerState | None = None
        self._tracker = OptimizerTracker(
            relax_checks=options.relax_optimizer_checks,
            automatic_scaling=automatic_loss_scaling(options),
        )
        # Weights: the copy on the device may be newer, or that of a model in training.
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._sources = Sources(model)
        self._has_numbers_by_weight = False  # loaded ones that differ within a group
        trace_if_profiled(options)
        if training:
            wrap(model, self)
            self.setOptimizer(self._needs_optimizer())

    @property
    def model(self) -> nn.Module:
        """The module that was wrapped."""
        return self._model

    @property
    def options(self) -> Options:
        """The options in use; they can no longer change."""
        return self._options

    @property
    def is_training(self) -> bool:
        """Whether it is a training model."""
        return self._training

    @cached_property
    def _name(self) -> str:
        """The model's name in reports and traces."""
        if self._options.exists("model_name"):
            return self._options.model_name
        return "training" if self._training else "inference"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        model = self.__dict__.get("_model")
        if model is None:
            raise AttributeError(f"PoplarExecutor has no attribute {name!r}")
        value = getattr(model, name)
        if isinstance(value, nn.Parameter):
            return ParameterOfModel(value, self._group_replicas)
        return value

    def __repr__(self) -> str:
        return module_repr(self._model)

    # -- running -----------------------------------------------------------------------------------

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        """Run one call's worth of micro-batches; the first call compiles."""
        with span(self._channel, "call"):
            compiled = self._compiled
            if compiled is None:
                Attachment(self._options).check_online()
                parsed = self._parser.parse(args, kwargs)
                compiled = self._compile(parsed)
            else:
                self._check_structure()
                parsed = self._parser.parse_again(args, kwargs, compiled.first)
            if not self.isAttachedToDevice():
                self._attach(compiled)
            if self._optimizer_state is not None:
                if self._optimizer_state.must_split():
                    compiled = self._compile_by_weight(compiled)
                self._optimizer_state.before_run()
            elif self._sources.fetch():  # inference follows what training models have learnt
                self.copyWeightsToDevice()
            return self._run(compiled, parsed)

    def _check_structure(self) -> None:
        """Refuse to run a program whose model has since become another one."""
        for module, structure in self._structures:
            if module.program_structure() != structure:
                raise createPoptorchError(
                    f"a {type(module).__name__} has changed its pattern since the model was "
                    "compiled: call destroy() before, and the next call compiles it again"
                )

    def _run(self, compiled: CompiledModel, parsed: ParsedArgs) -> Any:  # noqa: ANN401
        program = compiled.program
        core = program.compiled
        tensors = _as_device_has_them(parsed.tensors, compiled)
        collector = OutputCollector(compiled.output_groups)
        # The report of that name has what the device would do in this time.
        with poptorch_errors(), span(self._channel, "run", report=self._name):
            program.run(compiled.cutter.cut(tensors), collector.give)
        self._dirty_host_weights = self._training
        if self._optimizer is not None:
            # A schedule of torch's warns if its optimiser has not taken a step before it.
            self._optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        self._n_runs += 1
        if core.writes_inputs:
            write_back(parsed.originals, tensors)
        outputs, *anchored = collector.results()
        if core.loss_output is not None and is_tracing():
            sample("loss", self._name, float(outputs[core.loss_output].mean()))
        if compiled.anchors:
            self._keep_anchors(compiled, [tensor for (tensor,) in anchored])
        return core.step.rebuild_outputs(outputs)

    def _keep_anchors(self, compiled: CompiledModel, outputs: list[Tensor]) -> None:
        values = iter(outputs)
        for anchor in compiled.anchors:
            if anchor.is_output:
                self._anchored[anchor.short_name] = next(values)
            elif anchor.long_name == LOSS_SCALE:
                assert self._optimizer_state is not None, "only training scales a loss"
                self._anchored[anchor.short_name] = self._optimizer_state.loss_scaling()
            elif anchor.long_name not in compiled.program.compiled.names.updated:
                assert self._optimizer_state is not None, "only training has hyperparameters"
                params = self._optimizer_state.params()
                self._anchored[anchor.short_name] = params[anchor.long_name]
            else:
                index = compiled.program.compiled.names.updated[anchor.long_name]
                value = compiled.program.session.read_weights()[0][index]
                self._anchored[anchor.short_name] = value.detach().to("cpu", copy=True)

    # -- compiling ---------------------------------------------------------------------------------

    def isCompiled(self) -> bool:  # noqa: N802
        """Whether there is a program."""
        return self._compiled is not None

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile for arguments like these without running."""
        if self._compiled is not None:
            LOGGER.warning("Call to compile() ignored: the model is already compiled")
            return
        self._compile(self._parser.parse(args, kwargs))

    def _compile(
        self, parsed: ParsedArgs, stored: "StoredTileProgram | None" = None
    ) -> CompiledModel:
        with span(self._channel, "compile"):
            compiled = self._compile_step(parsed, stored)
        write_profile(compiled, self._name)
        return compiled

    def _compile_step(
        self, parsed: ParsedArgs, stored: "StoredTileProgram | None"
    ) -> CompiledModel:
        options = self._options
        set_max_repeats(options.max_repeat_logs)
        validate_options(options.toDict())
        attachment = Attachment(options)
        self._parser.warn_about_types(parsed)
        if self._training:
            wrap(self._model, self)  # again after destroy()
        with poptorch_errors():
            rule, groupings = self._start_rule(), self._named_groupings()
        compiled = compile_model(
            self._model,
            parsed,
            options,
            rule,
            host_settings(),
            device=attachment,
            stored=stored,
            groupings=groupings,
        )
        if self._rng_state is not None:
            _restore_random(compiled, self._rng_state)
        self._compiled, self._attachment, self._n_runs = compiled, attachment, 0
        modules: list[Any] = list(self._model.modules())
        self._structures = [
            (module, module.program_structure())
            for module in modules
            if hasattr(module, "program_structure")
        ]
        self._optimizer_state = None
        if attachment.kind is ConnectionType.Always:
            self._attach_or_forget(compiled)
        return compiled

    def _attach_or_forget(self, compiled: CompiledModel) -> None:
        """A model that gets no device at once does not count as compiled."""
        try:
            self._attach(compiled)
        except BaseException:
            self._device().release()
            self._compiled = self._attachment = self._optimizer_state = None
            raise

    def _compile_by_weight(self, before: CompiledModel) -> CompiledModel:
        """Compile again for numbers that each weight has its own of, and go on from here."""
        LOGGER.info("The loaded optimizer has numbers for each weight: the model is recompiled.")
        old, rng_state, n_runs = self._optimizer_state, self._rng_state, self._n_runs
        assert old is not None, "only training has an optimiser"
        states = [state.detach().clone() for state in old.read_states()]
        hyper, factor = self._tracker.values_by_weight(old.hyper), old.scale_factor()
        self.copyWeightsToHostIfNeeded()
        self._rng_state = self.rng_state
        self._device().release()
        self._has_numbers_by_weight = True
        compiled = self._compile(before.first)
        if not self.isAttachedToDevice():
            self._attach(compiled)
        new = self._optimizer_state
        assert new is not None, "an attached model that trains has it"
        new.take_over(states, hyper, factor)
        self._rng_state, self._n_runs = rng_state, n_runs
        return compiled

    def _start_rule(self) -> GroupedRule | None:
        if not self._training:
            return None
        return self._tracker.start(
            self._needs_optimizer(),
            self._named_parameters(),
            by_weight=self._has_numbers_by_weight,
        )

    def _named_parameters(self) -> list[tuple[str, Tensor]]:
        return [(held.name, held.tensor) for held in held_tensors(self._model, PARAMETER)]

    def _named_groupings(self) -> dict[str, Grouping]:
        return {
            name: self._groupings[id(tensor)]
            for name, tensor in self._named_parameters()
            if id(tensor) in self._groupings
        }

    def _group_replicas(self, parameter: Tensor, group_type: int, shards: int, mode: int) -> None:
        """Give groups of replicas their own values of a parameter: `parameter.replicaGrouping`."""
        if parameter.dim() == 0:
            raise createPoptorchError(
                "Scalars cannot be passed as per-replica weight tensor values"
            )
        if self._compiled is not None:
            raise createPoptorchError("replicaGrouping must be called before compiling.")
        self._groupings.pop(id(parameter), None)
        kind = CommGroupType(group_type)
        if kind is not CommGroupType.All:
            self._groupings[id(parameter)] = Grouping(
                1 if kind is CommGroupType.NoGrouping else shards,
                is_orthogonal=kind is CommGroupType.Orthogonal,
                returns_all=VariableRetrievalMode(mode) is VariableRetrievalMode.AllReplicas,
            )

    def _needs_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._compiled

    def destroy(self) -> None:
        """Flush the weights and forget the program; the next call compiles again."""
        if self._compiled is not None:
            self._flush()
            if self._optimizer_state is not None:
                self._optimizer_state.let_go()
            self._device().release()
            write_profile(self._compiled, self._name)
            self._compiled = self._attachment = self._optimizer_state = None
        self._has_numbers_by_weight = False
        self._rng_state = None
        if self._training:
            unwrap(self._model)

    # -- files -------------------------------------------------------------------------------------

    def compileAndExport(  # noqa: N802
        self,
        filename: str,
        *args: object,
        export_model: bool = True,
        **kwargs: object,
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

    # -- the device --------------------------------------------------------------------------------

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
        self._device().attach(_n_ipus_of(compiled))
        if not self._training:
            self._sources.fetch()
        self.copyWeightsToDevice()
        rule = compiled.rule  # of the weights that have a gradient
        if rule is not None and self._optimizer_state is None:
            self._optimizer_state = OptimizerState(
                self._needs_optimizer(),
                rule,
                compiled.program.session,
                dict(compiled.weights.named_parameters()),
                self._tracker.values_of(self._needs_optimizer()),
                grouped=frozenset(compiled.program.settings.groupings),
            )
            self._optimizer_state.write_first()

    def _flush(self) -> None:
        """Fetch everything that is newer on the device."""
        self.copyWeightsToHostIfNeeded()
        if self._optimizer_state is not None:
            self._optimizer_state.read_back()

    @property
    def rng_state(self) -> list[int]:
        """The seed and the state of the device's random numbers; it can be set."""
        if self._compiled is None and self._rng_state is not None:
            return list(self._rng_state)
        return state_of(self._needs_compiled().program.random)

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        if self._compiled is None:
            self._rng_state = list(state)
        else:
            _restore_random(self._compiled, list(state))

    # -- weights and optimiser ---------------------------------------------------------------------

    def copyWeightsToDevice(self) -> None:  # noqa: N802
        """Host → device, without fetching first: what was trained since is overwritten."""
        compiled = self._needs_compiled()
        with span(self._channel, "copyWeightsToDevice"):
            compiled.write_weights()

    def copyNamedBuffersToDevice(self) -> None:  # noqa: N802
        """Host → device for the buffers named by `Options.updatableNamedBuffers`."""
        compiled = self._needs_compiled()
        names = self._options.Popart.get("updatableNamedBuffers")
        if not names:
            raise createPoptorchError(
                "No named buffers marked as updatable via updatableNamedBuffers option"
            )
        _, buffers = compiled.weights.values()
        indices = compiled.weights.buffer_indices(names)
        compiled.program.session.write_buffers({index: buffers[index] for index in indices})

    def copyWeightsToHost(self) -> None:  # noqa: N802
        """Device → host, always."""
        compiled = self._needs_compiled()
        with span(self._channel, "copyWeightsToHost"):
            compiled.weights.store(*compiled.program.read_weights())
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
        """Use the values an optimiser has now; without this call a change goes unnoticed."""
        self._tracker.note(optimizer)
        if self._compiled is None and self._training:
            are_half = settings_of(optimizer).fixed.sums_in_half
            self._options.Training.follow_accumulators(are_half=are_half)
        elif self._training:
            changed = self._tracker.changed(optimizer, self._named_parameters())
            if self._optimizer_state is not None:
                self._optimizer_state.follow(optimizer)
                if changed is not None:
                    self._optimizer_state.set_hyper(changed)
        self._optimizer = optimizer

    def _needs_optimizer(self) -> torch.optim.Optimizer:
        assert self._optimizer is not None, "trainingModel gives every training model an optimiser"
        return self._optimizer

    # -- tensors inside the model ------------------------------------------------------------------

    def getTensorNames(self) -> list[str]:  # noqa: N802
        """Names of all tensors that can be anchored."""
        assert self._compiled is not None, (
            "Tensor names are only available after the model has been compiled."
        )
        names = self._compiled.program.compiled.names.all(self._training)
        rule = self._compiled.rule
        return names if rule is None else [*names, *ipu_param_names(rule)]

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
        return graph_as_json(self._needs_compiled().program.step)

    # -- time on the machine, from the tile program ------------------------------------------------

    def compiled_program(self) -> Program:
        """The compiled step: its session, its report, its tile program."""
        return self._needs_compiled().program

    def tile_program(self) -> "TileProgram":
        """The program for tiles: `executable`, `timing`, `engine`, compiled on demand."""
        return self.compiled_program().tiles

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the tile program for the analyser; the path of its file."""
        with poptorch_errors():
            return self.compiled_program().save_report(folder, self._name)

    def cycleCount(self) -> int:  # noqa: N802
        """Cycles the machine takes for one call, from the tile program."""
        if not self._options.Popart.get("instrumentWithHardwareCycleCounter"):
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if uses_ipu_model(self._options):
            raise createPoptorchError(
                "Cycle count logging is only supported on actual IPU hardware."
            )
        if self._compiled is None or self._n_runs == 0:
            raise createPoptorchError(
                "Please run the model at least once before obtaining cycle count."
            )
        return self._timing(self._compiled).total_cycles

    def _timing(self, compiled: CompiledModel) -> performance.CallTiming:
        with poptorch_errors():
            return compiled.program.timing()

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
        return dt.timedelta(seconds=self._compiled.program.compile_seconds)

    def getPerfCounters(self) -> performance.Counters:  # noqa: N802
        """When inputs and outputs of a call move, modelled: seconds per tensor and micro-batch."""
        compiled = self._compiled
        is_synthetic = self._options.Popart.get("syntheticDataMode") != 0
        if compiled is None or self._n_runs == 0:
            return performance.no_counters()
        if is_synthetic:  # nothing moves
            return performance.no_counters(len(compiled.first.tensors), compiled.n_outputs)
        batches = compiled.selection.micro_batches()
        return performance.perf_counters(self._timing(compiled), batches, compiled.n_outputs)

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
        if self._compiled is None:
            return 0.0, 0.0, 0.0
        batches = self._compiled.selection.micro_batches()
        return performance.latency_between(self.getPerfCounters(), batches, *events)


def _restore_random(compiled: CompiledModel, state: list[int]) -> None:
    """Let the model's random numbers go on from a state that `rng_state` gave."""
    with poptorch_errors():
        restore(compiled.program.random, state)


def _as_device_has_them(tensors: list[Tensor], compiled: CompiledModel) -> Sequence[Tensor]:
    """Whole inputs in the types of the device, moved there in one transfer each."""
    result = list(tensors)
    for i, dtype in compiled.wide_inputs.items():
        result[i] = result[i].to(dtype)
    return compiled.program.on_device(result)


def _n_ipus_of(compiled: CompiledModel) -> int:
    """The chips that a device of the model has: a power of two."""
    tiles = compiled.program.tiles
    n_used = tiles.schedule.n_chips * tiles.repetition.n_replicas
    return 1 << (n_used - 1).bit_length()
