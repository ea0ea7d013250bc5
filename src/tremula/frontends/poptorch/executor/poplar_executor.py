"""PoplarExecutor: a module that runs as a compiled program."""

from typing import Any

import torch
from torch import Tensor, nn

from tremula.base.tracing import is_tracing, sample, span
from tremula.frontends.poptorch.blocks import module_repr
from tremula.frontends.poptorch.enums import CommGroupType, ConnectionType, VariableRetrievalMode
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor import saving
from tremula.frontends.poptorch.executor.attachment import Attachment
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.executor.device import ExecutorDevice
from tremula.frontends.poptorch.executor.names import LOSS_SCALE
from tremula.frontends.poptorch.executor.outputs import OutputCollector
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.frontends.poptorch.executor.profile_folder import trace_if_profiled, write_profile
from tremula.frontends.poptorch.executor.randomness import restore
from tremula.frontends.poptorch.executor.replica_weights import Grouping
from tremula.frontends.poptorch.executor.timing import ExecutorTiming
from tremula.frontends.poptorch.executor.weights import ParameterOfModel, unwrap, wrap
from tremula.frontends.poptorch.inputs.arg_parsers import NARROWER, ArgsParser, ParsedArgs
from tremula.frontends.poptorch.logging import LOGGER, set_max_repeats
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.popart import validate_options
from tremula.ir.capture.capture import held_tensors
from tremula.ir.run.tile_cache import StoredTileProgram
from tremula.ir.settings import host_settings
from tremula.ir.step import PARAMETER


class PoplarExecutor(ExecutorDevice, ExecutorTiming):
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
        super().__init__(model, options, training, optimizer)
        self._parser = ArgsParser(model)
        self._groupings: dict[int, Grouping] = {}  # by id of the parameter
        trace_if_profiled(options)
        if training:
            wrap(model, self)

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
                Attachment(self._options).check_online()
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
        self._parser.warn_about_types(parsed)
        if self._training:
            wrap(self._model, self)  # again after destroy()
        parameters = held_tensors(self._model, PARAMETER)
        rule = None
        if self._training:
            named = [(held.name, held.tensor) for held in parameters]
            rule = self._tracker.start(self._needs_optimizer(), named)
        settings = host_settings()
        on_tiles = uses_ipu_model(options) or settings.tiles == "run"
        groups = {
            held.name: self._groupings[id(held.tensor)]
            for held in parameters
            if id(held.tensor) in self._groupings
        }
        compiled = CompiledModel(
            self._model, parsed, options, rule, settings, on_tiles, stored=stored, groupings=groups
        )
        if self._rng_state is not None:
            restore(compiled.random, self._rng_state)
        self._compiled, self._attachment, self._n_runs = compiled, attachment, 0
        self._optimizer_state = None
        if attachment.kind is ConnectionType.Always:
            self._attach(compiled)
        return compiled

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

    def destroy(self) -> None:
        """Flush the weights and forget the program; the next call compiles again."""
        if self._compiled is not None:
            self._flush()
            if self._optimizer_state is not None:
                self._optimizer_state.let_go()
            self._device().release()
            write_profile(self._compiled, self._name)
            self._compiled = self._attachment = self._optimizer_state = None
        self._rng_state = None
        if self._training:
            unwrap(self._model)


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
