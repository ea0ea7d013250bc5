"""A model compiled for fixed arguments: what PopTorch adds to the compiled step of `tremula.ir`."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from tremula.base.lazy import load_front_ends_of_libraries
from tremula.frontends.poptorch.block_places import placing_blocks
from tremula.frontends.poptorch.enums import OutputMode
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor.outputs import OutputGroup, Selection
from tremula.frontends.poptorch.executor.placement import check_placed
from tremula.frontends.poptorch.executor.step_settings import step_settings
from tremula.frontends.poptorch.executor.weights import HostWeights, plain
from tremula.frontends.poptorch.inputs.arguments import (
    InputCutter,
    ParsedArgs,
    flatten_outputs,
    micro_batch,
    narrower_types,
)
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.optim.names import ipu_param_names
from tremula.frontends.poptorch.options.options import AnchoredTensor, Options
from tremula.frontends.shared.program import AttachedDevice, StepProgram, compile_program
from tremula.ir.group_values import GroupValues
from tremula.ir.optim.grouped_rule import GroupedRule
from tremula.ir.run.compiled_step import CompiledStep, StepToCompile
from tremula.ir.settings import HostSettings

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.tile_cache import StoredTileProgram

# -- functions of the script around a compilation --------------------------------------------------

_before: OrderedDict[int, Callable[[], object]] = OrderedDict()
_after: OrderedDict[int, Callable[[], object]] = OrderedDict()


def registerPreCompileHook(hook: Callable[[], object]) -> RemovableHandle:  # noqa: N802
    """Call `hook()` before each compilation of a model, until `remove()` of the handle."""
    return _registered(hook, _before, "Pre-compile hook")


def registerPostCompileHook(hook: Callable[[], object]) -> RemovableHandle:  # noqa: N802
    """Call `hook()` after each compilation of a model, until `remove()` of the handle."""
    return _registered(hook, _after, "Post-compile hook")


def _registered(hook: Callable, hooks: OrderedDict, what: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{what} must be callable, got {hook!r}")  # noqa: TRY004
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@contextmanager
def _compile_hooks() -> Iterator[None]:
    """Runs both kinds around the block, in the order they were registered."""
    load_front_ends_of_libraries()
    for hook in list(_before.values()):
        hook()
    try:
        yield
    finally:
        for hook in list(_after.values()):
            hook()


# -- compiling -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anchor:
    """A tensor to return, from `Options.anchorTensor`."""

    short_name: str
    long_name: str
    anchored: AnchoredTensor
    is_output: bool  # of the graph; otherwise the device holds it after a call


@dataclass(frozen=True)
class CompiledModel:
    """Everything a call needs: how arguments go in, the step itself, how results come out."""

    options: Options
    first: ParsedArgs  # the arguments it was compiled for
    weights: HostWeights
    program: StepProgram
    cutter: InputCutter
    wide_inputs: dict[int, torch.dtype]  # types instead of those the device does not have
    selection: Selection
    anchors: list[Anchor]
    output_groups: list[OutputGroup]  # forward's outputs, then one for each anchored tensor

    @property
    def rule(self) -> GroupedRule | None:
        rule = self.program.step.rule
        assert rule is None or isinstance(rule, GroupedRule), "made from an optimiser of torch"
        return rule

    @property
    def n_outputs(self) -> int:
        """How many tensors forward returns."""
        return self.program.compiled.n_outputs

    def write_weights(self) -> None:
        """Host → device."""
        self.program.write_weights(*self.weights.values())


def compile_model(
    model: nn.Module,
    first: ParsedArgs,
    options: Options,
    rule: GroupedRule | None,
    host: HostSettings,
    *,
    device: AttachedDevice | None = None,
    stored: "StoredTileProgram | None" = None,
    groupings: Mapping[str, GroupValues] | None = None,
) -> CompiledModel:
    """Compile a module for arguments like these."""
    _name_weights_as_now(options, model)
    of_optimizer = frozenset() if rule is None else frozenset(ipu_param_names(rule))
    settings = step_settings(options, host, groupings or {}, not_in_graph=of_optimizer)
    narrower = narrower_types(model)
    request = _step_to_compile(model, first, options, rule, narrower)
    with plain(model):
        weights = HostWeights(model)
        weights.buffer_indices(options.Popart.get("updatableNamedBuffers"))
        with poptorch_errors(), _compile_hooks(), placing_blocks(options.execution_strategy):
            program = compile_program(request, settings, stored=stored, device=device)
            check_placed(program.step, program.tiles.schedule, options)
            program.open()
    core = program.compiled
    anchors = _anchors(core, options)
    selection = Selection.of(options)
    return CompiledModel(
        options,
        first,
        weights,
        program,
        InputCutter(first.tensors, options),
        {
            i: narrower[tensor.dtype]
            for i, tensor in enumerate(first.tensors)
            if _on_device(tensor, narrower) is not tensor
        },
        selection,
        anchors,
        _output_groups(core, selection, anchors, options, narrower),
    )


def _name_weights_as_now(options: Options, model: nn.Module) -> None:
    """Anchored weights that older PopTorch calls `model.fc.bias` are `fc.bias`."""
    names = {name for name, _ in model.named_parameters()}
    for short, anchored in options.anchored_tensors.items():
        prefix, separator, weight = anchored.long_name.rpartition("___")
        if weight not in names and weight.removeprefix("model.") in names:
            new = f"{prefix}{separator}{weight.removeprefix('model.')}"
            options.anchored_tensors[short] = anchored._replace(long_name=new)


def _step_to_compile(
    model: nn.Module,
    first: ParsedArgs,
    options: Options,
    rule: GroupedRule | None,
    narrower: Mapping[torch.dtype, torch.dtype],
) -> StepToCompile:
    micro = [_on_device(micro_batch(tensor, options), narrower) for tensor in first.tensors]
    for tensor in micro:
        if tensor.numel() == 0:
            shape = list(tensor.shape)
            raise createPoptorchError(f"Zero-sized tensors are unsupported (Got shape {shape})")

    def run_forward(flat: list[Tensor]) -> tuple[list[Tensor], Callable[..., Any]]:
        args, kwargs = first.rebuild(flat)
        outputs, rebuild = flatten_outputs(model(*args, **kwargs))
        if not all(isinstance(output, FakeTensor) for output in outputs):
            LOGGER.warning("Output expected to be on the IPU but is on cpu")
        return outputs, rebuild

    return StepToCompile(model, run_forward, micro, first.tensor_names(), rule)


def _on_device(tensor: Tensor, narrower: Mapping[torch.dtype, torch.dtype]) -> Tensor:
    """As the model sees an input: floats are narrower on the device, integers stay as they are."""
    is_wide = tensor.is_floating_point() and tensor.dtype in narrower
    return tensor.to(narrower[tensor.dtype]) if is_wide else tensor


def _anchors(core: CompiledStep, options: Options) -> list[Anchor]:
    anchors = []
    for short, anchored in options.anchored_tensors.items():
        name = anchored.long_name
        is_output = name in core.anchored
        mode = anchored.output_mode or OutputMode(options.output_mode)
        if not is_output and mode is not OutputMode.Final and options.device_iterations > 1:
            raise createPoptorchError(
                f"{name} is only known after the last device iteration of a call: anchor it with "
                "output_mode=poptorch.OutputMode.Final"
            )
        anchors.append(Anchor(short, name, anchored, is_output))
    return anchors


def _output_groups(
    core: CompiledStep,
    selection: Selection,
    anchors: list[Anchor],
    options: Options,
    narrower: Mapping[torch.dtype, torch.dtype],
) -> list[OutputGroup]:
    """The outputs of forward, and each anchored tensor with its mode."""
    facts, n = core.output_facts(), core.n_outputs
    groups = [OutputGroup(selection, 0, facts[:n], narrower)]
    for index, anchor in enumerate((a for a in anchors if a.is_output), start=n):
        mode, period = anchor.anchored.output_mode, anchor.anchored.output_return_period
        own = Selection.of(options, mode, period)
        groups.append(OutputGroup(own, index, [facts[index]], narrower))
    return groups
