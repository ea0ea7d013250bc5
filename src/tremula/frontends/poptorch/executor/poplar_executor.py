"""PoplarExecutor: a module that runs as a compiled program."""

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tremula.base.lazy import load_front_ends_of_libraries
from tremula.base.tracing import is_tracing, sample, span
from tremula.frontends.poptorch.blocks import module_repr
from tremula.frontends.poptorch.enums import ConnectionType
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor import saving
from tremula.frontends.poptorch.executor.anchored import AnchoredValues, tensor_names
from tremula.frontends.poptorch.executor.attachment import Attachment
from tremula.frontends.poptorch.executor.compiled import CompiledModel, compile_model
from tremula.frontends.poptorch.executor.groupings import ParameterGroupings
from tremula.frontends.poptorch.executor.model_optimizer import ModelOptimizer
from tremula.frontends.poptorch.executor.outputs import OutputCollector
from tremula.frontends.poptorch.executor.profile_folder import trace_if_profiled, write_profile
from tremula.frontends.poptorch.executor.times import ModelTimes
from tremula.frontends.poptorch.executor.weights import ParameterOfModel, Sources, unwrap, wrap
from tremula.frontends.poptorch.inputs.arguments import ArgsParser, ParsedArgs
from tremula.frontends.poptorch.logging import LOGGER, set_max_repeats
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.popart import validate_options
from tremula.frontends.shared.program import StepProgram, write_back
from tremula.ir.capture.capture import model_tensors
from tremula.ir.run import performance
from tremula.ir.run.generators import restore, state_of
from tremula.ir.run.tensor_names import graph_as_json
from tremula.ir.settings import host_settings
from tremula.ir.step import PARAMETER

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
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
        self._groupings = ParameterGroupings()
        # The program, and what belongs to it.
        self._compiled: CompiledModel | None = None
        self._attachment: Attachment | None = None
        self._n_runs = 0
        self._anchored = AnchoredValues(options)
        self._rng_state: list[int] | None = None  # to start with
        self._updates = ModelOptimizer(options, optimizer)
        # Weights: the copy on the device may be newer, or that of a model in training.
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._sources = Sources(model)
        trace_if_profiled(options)
        if training:
            wrap(model, self)
            self._updates.use(self._updates.needed)

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
            if self._updates.must_split():
                compiled = self._compile_by_weight(compiled)
            if self._updates.state is not None:
                self._updates.state.before_run()
            elif self._sources.fetch():  # inference follows what training models have learnt
                self.copyWeightsToDevice()
            return self._run(compiled, parsed)

    def _check_structure(self) -> None:
        """Reject a program whose model has since become another one."""
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
        self._updates.note_step()
        self._n_runs += 1
        if core.writes_inputs:
            write_back(parsed.originals, tensors)
        outputs, *anchored = collector.results()
        if core.loss_output is not None and is_tracing():
            sample("loss", self._name, float(outputs[core.loss_output].mean()))
        if compiled.anchors:
            values = [tensor for (tensor,) in anchored]
            self._anchored.store(compiled, values, self._updates.state)
        return core.step.rebuild_outputs(outputs)

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
            parameters = self._named_parameters()
            rule = self._updates.start_rule(parameters)
            n_replicas = options.session_options().n_replicas
            groupings = self._groupings.named(parameters, n_replicas)
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
        self._updates.state = None
        if attachment.kind is ConnectionType.Always:
            self._attach_or_forget(compiled)
        return compiled

    def _attach_or_forget(self, compiled: CompiledModel) -> None:
        """A model that gets no device at once does not count as compiled."""
        try:
            self._attach(compiled)
        except BaseException:
            self._device().release()
            self._compiled = self._attachment = self._updates.state = None
            raise

    def _compile_by_weight(self, before: CompiledModel) -> CompiledModel:
        """Compile again for numbers that each weight has its own of, and continue from here."""
        LOGGER.info("The loaded optimizer has numbers for each weight: the model is recompiled.")
        rng_state, n_runs = self._rng_state, self._n_runs
        states, hyper, factor = self._updates.split()
        self.copyWeightsToHostIfNeeded()
        self._rng_state = self.rng_state
        self._device().release()
        compiled = self._compile(before.first)
        if not self.isAttachedToDevice():
            self._attach(compiled)
        new = self._updates.state
        assert new is not None, "an attached model that trains has it"
        new.take_over(states, hyper, factor)
        self._rng_state, self._n_runs = rng_state, n_runs
        return compiled

    def _named_parameters(self) -> list[tuple[str, Tensor]]:
        return [(slot.name, slot.tensor) for slot in model_tensors(self._model, PARAMETER)]

    def _group_replicas(self, parameter: Tensor, group_type: int, shards: int, mode: int) -> None:
        """Give groups of replicas their own values of a parameter: `parameter.replicaGrouping`."""
        if self._compiled is not None:
            raise createPoptorchError("replicaGrouping must be called before compiling.")
        self._groupings.set(parameter, group_type, shards, mode)

    def _needs_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._compiled

    def destroy(self) -> None:
        """Flush the weights and forget the program; the next call compiles again."""
        if self._compiled is not None:
            self._flush()
            self._updates.let_go()
            self._device().release()
            write_profile(self._compiled, self._name)
            self._compiled = self._attachment = self._updates.state = None
        self._updates.join()
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
        state = self.rng_state if save_rng_state else None
        saving.save(
            filename,
            compiled,
            self._model,
            self._updates.optimizer if self._training else None,
            state,
            export_model=export_model,
        )

    def loadExecutable(self, filename: str) -> None:  # noqa: N802
        """Take what `save` wrote for this model instead of compiling; no code of the file runs."""
        if self._compiled is not None:
            raise createPoptorchError("The model is already compiled: call destroy() first.")
        self.compile_stored(*saving.load_executable(filename, training=self._training))

    def compile_stored(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        stored: "StoredTileProgram | None",
    ) -> None:
        """Take a tile program that was compiled for arguments like these; without one, compile."""
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
        self._updates.attach(compiled)

    def _flush(self) -> None:
        """Fetch everything that is newer on the device."""
        self.copyWeightsToHostIfNeeded()
        self._updates.read_back()

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
        if self._compiled is None:
            self._updates.use(optimizer)
        else:
            self._updates.change(optimizer, self._named_parameters())

    @property
    def current_optimizer(self) -> torch.optim.Optimizer | None:
        """The optimiser that was set last; None if there is none."""
        return self._updates.optimizer

    # -- tensors inside the model ------------------------------------------------------------------

    def getTensorNames(self) -> list[str]:  # noqa: N802
        """Names of all tensors that can be anchored."""
        return tensor_names(self._compiled)

    def getAnchoredTensor(self, short_name: str) -> Tensor:  # noqa: N802
        """The value of an anchored tensor in the last call."""
        return self._anchored.value(short_name)

    def _debugGetPopartIR(self) -> str:  # noqa: N802
        return graph_as_json(self._needs_compiled().program.step)

    # -- time on the machine, from the tile program ------------------------------------------------

    def compiled_program(self) -> StepProgram:
        """The compiled step: its session, its report, its tile program."""
        return self._needs_compiled().program

    def tile_program(self) -> "TileProgram":
        """The program for tiles: `executable`, `timing`, `engine`, compiled on demand."""
        return self.compiled_program().tiles

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the tile program for the analyser; the path of its file."""
        with poptorch_errors():
            return self.compiled_program().save_report(folder, self._name)

    @property
    def _times(self) -> ModelTimes:
        return ModelTimes(self._compiled, self._options, self._n_runs)

    def cycleCount(self) -> int:  # noqa: N802
        """Cycles the machine takes for one call, from the tile program."""
        return self._times.cycle_count()

    def cycleInterval(self) -> tuple[int, int]:  # noqa: N802
        """Cycles between which real hardware would be for one call, nine times in ten.

        An addition of Tremula, from errors on published measurements: docs/accuracy.md.
        """
        return self._times.cycle_interval()

    def compilationTime(self) -> dt.timedelta:  # noqa: N802
        """How long the last compilation took, with that of the tile program if there was one."""
        return self._times.compilation_time()

    def getPerfCounters(self) -> performance.Counters:  # noqa: N802
        """When inputs and outputs of a call move, modelled: seconds per tensor and micro-batch."""
        return self._times.perf_counters()

    def getLatency(self) -> performance.Latency:  # noqa: N802
        """From input to output of a micro-batch: least, most and average seconds."""
        return self._times.latency(performance.ROUND_TRIP)

    def getHostIpuLatency(self) -> performance.Latency:  # noqa: N802
        """On the way to the machine: least, most and average seconds of a micro-batch."""
        return self._times.latency(performance.HOST_TO_IPU)

    def getComputeLatency(self) -> performance.Latency:  # noqa: N802
        """In computing: least, most and average seconds of a micro-batch."""
        return self._times.latency(performance.COMPUTE)

    def getIpuHostLatency(self) -> performance.Latency:  # noqa: N802
        """On the way back: least, most and average seconds of a micro-batch."""
        return self._times.latency(performance.IPU_TO_HOST)


def _restore_random(compiled: CompiledModel, state: list[int]) -> None:
    """Let the model's random numbers continue from a state that `rng_state` gave."""
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
