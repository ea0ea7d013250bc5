"""Runs a model's forward once on fake tensors and records the whole step it describes."""

import contextlib
import itertools
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.modules import transformer
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.base.libraries.patching import replaced, replaced_for_all, wrapped
from tremula.ir.capture import function_rules
from tremula.ir.capture.autocast import autocast_of_any_device
from tremula.ir.capture.losses import scalar_loss, surviving_loss
from tremula.ir.capture.module_state import state_restored, unregistered_tensors
from tremula.ir.errors import CaptureError
from tremula.ir.optim.rule import UpdateRule
from tremula.ir.origin import BACKWARD, OPTIMISER
from tremula.ir.recorder import DEVICE, Recorder
from tremula.ir.recording import Recording, active, recording
from tremula.ir.step import (
    BUFFER,
    GRADIENT,
    HYPER,
    INPUT,
    LOSS,
    OUTPUT,
    PARAMETER,
    STATE,
    CapturedStep,
    StepSlot,
)


@dataclass(frozen=True)
class ModelTensor:
    """A parameter or buffer of a model: its first name, and every place that refers to it."""

    name: str
    tensor: Tensor
    places: tuple[tuple[nn.Module, str], ...]

    @property
    def kind(self) -> str:
        return PARAMETER if isinstance(self.tensor, nn.Parameter) else BUFFER


def model_tensors(model: nn.Module, kind: str) -> list[ModelTensor]:
    """Every distinct parameter (or buffer) with all modules that refer to it: tied ones once."""
    result: dict[int, tuple[str, Tensor, list]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, tensor in tensors_by_name(module, kind).items():
            if tensor is not None and not _is_constant(tensor, kind, name):
                full = f"{path}.{name}" if path else name
                entry = result.setdefault(id(tensor), (full, tensor, []))
                if (module, name) not in entry[2]:
                    entry[2].append((module, name))
    return [ModelTensor(name, tensor, tuple(places)) for name, tensor, places in result.values()]


def _is_constant(tensor: Tensor, kind: str, name: str) -> bool:
    """Whether a tensor is sparse: a buffer is a constant then, a parameter cannot be trained."""
    if tensor.layout is torch.strided:
        return False
    if kind == PARAMETER:
        raise CaptureError(
            f"the parameter {name!r} is a sparse tensor, which PyTorch cannot train: use "
            "poptorch.sparse.SparseLinear.from_sparse(tensor), or register it as a buffer."
        )
    return True


def tensors_by_name(module: nn.Module, kind: str) -> dict[str, Tensor | None]:
    """Where a module keeps its parameters or buffers by name: tensors or None."""
    return module._parameters if kind == PARAMETER else module._buffers  # pyright: ignore[reportReturnType] - stand-ins of parameters are tensors


def capture(
    model: nn.Module,
    run_forward: Callable[[list[Tensor]], tuple[list[Tensor], Any]],
    inputs: list[Tensor],
    *,
    rule: UpdateRule | None = None,
    input_names: list[str] | None = None,
    source_excludes: tuple[str, ...] = (),
    warn: Callable[[str], None] | None = None,
    keep_loss: bool = False,
    strides_group_norms: bool = False,
) -> CapturedStep:
    """Record one step. `run_forward` returns, for flat inputs, flat outputs and how to rebuild.

    With an update rule the step trains: the loss is found, differentiated and the weights updated;
    `keep_loss` makes it a result of kind LOSS. `warn` is told what a model's author should know.
    The graph is as PyTorch ran it; `passes` make it functional.
    """
    recording_state = Recording(
        rule is not None, source_excludes, warn=warn, strides_group_norms=strides_group_norms
    )
    return _Capture(model, inputs, rule, recording_state, keep_loss).run(
        run_forward, input_names or [f"input_{i}" for i in range(len(inputs))]
    )


class _Capture:
    def __init__(
        self,
        model: nn.Module,
        inputs: list[Tensor],
        rule: UpdateRule | None,
        state: Recording,
        keep_loss: bool,
    ):
        self.model = model
        self.real_inputs = inputs
        self.rule = rule
        self.parameters = model_tensors(model, PARAMETER)
        self.buffers = model_tensors(model, BUFFER)
        self.state = state
        self.keep_loss = keep_loss
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self.recorder = Recorder(self.state, self.fakes)
        self.recorder.known_constants = unregistered_tensors(model)
        self.state.recorder = self.recorder
        self.slots: list[StepSlot] = []
        self.wanted_gradients: list[Tensor] = []

    def run(self, run_forward: Callable, input_names: list[str]) -> CapturedStep:
        parameters = self._placeholders(PARAMETER, [(h.name, h.tensor) for h in self.parameters])
        buffers = self._placeholders(BUFFER, [(h.name, h.tensor) for h in self.buffers])
        inputs = self._placeholders(
            INPUT, list(zip(input_names, self.real_inputs, strict=True)), requires_grad=False
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(recording(self.state))
            stack.enter_context(state_restored(self.model))
            stack.enter_context(_swapped(self.parameters + self.buffers, parameters + buffers))
            stack.enter_context(_quiet_settings())
            stack.enter_context(_on_the_device())
            stack.enter_context(autocast_of_any_device())
            stack.enter_context(_module_paths(self.model, self.state))
            stack.enter_context(self.fakes)
            stack.enter_context(self.recorder)
            with _plain_names(), function_rules.FunctionRules(self.state):
                outputs, rebuild = run_forward(inputs)
            updates = self._train(parameters) if self.rule is not None else []
        results = [
            (StepSlot(OUTPUT, i, f"output_{i}"), self._value(tensor))
            for i, tensor in enumerate([*outputs, *self.wanted_gradients])
        ]
        results += updates
        results += self._held_results(parameters if self.rule is None else [], buffers, inputs)
        self.recorder.graph.output([node for _, node in results])
        return CapturedStep(
            self.recorder.graph,
            self.recorder.constants,
            tuple(self.slots),
            tuple(slot for slot, _ in results),
            tuple(self.state.blocks),
            self.rule,
            rebuild,
        )

    def _placeholders(
        self,
        kind: str,
        named: list[tuple[str, Tensor]],
        *,
        requires_grad: bool | None = None,
        owners: Sequence[str | None] | None = None,
    ) -> list[Tensor]:
        """Inputs of one kind; `owners` are the weights that an optimiser's states belong to."""
        fakes = []
        for index, (name, tensor) in enumerate(named):
            with _outside_the_recording():
                is_fake = isinstance(tensor, FakeTensor) and tensor.fake_mode is self.fakes
                fake = tensor if is_fake else self._stand_in(tensor)
            if self.recorder.knows(fake):  # one tensor given for two inputs is still two inputs
                with _outside_the_recording(), self.fakes:
                    fake = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
            if requires_grad is not None and fake.requires_grad:
                fake = fake.detach()
            self.recorder.placeholder(f"{kind}_{index}", fake)
            self.state.stand_ins[id(fake)] = tensor
            owner = None if owners is None else owners[index]
            self.slots.append(StepSlot(kind, index, name, owner))
            fakes.append(fake)
        return fakes

    def _stand_in(self, tensor: Tensor) -> Tensor:
        """A tensor without values; steps are recorded on the host, wherever weights are."""
        if tensor.device.type == "cpu":
            return self.fakes.from_tensor(tensor)
        with self.fakes:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        return fake.requires_grad_(tensor.requires_grad)

    def _value(self, tensor: Tensor) -> fx.Node:
        """The node of a returned tensor; one from outside is a constant."""
        if not self.recorder.knows(tensor):
            return self.recorder.constant(tensor.detach().clone(), self.fakes.from_tensor(tensor))
        return self.recorder.node_of(tensor)

    def _held_results(self, *groups: list[Tensor]) -> list[tuple[StepSlot, fx.Node]]:
        """Parameters, buffers and inputs as results: functionalisation finds which were written."""
        results = []
        for kind, tensors in zip((PARAMETER, BUFFER, INPUT), groups, strict=True):
            named = [slot for slot in self.slots if slot.kind == kind]
            results += [
                (slot, self.recorder.node_of(tensor))
                for slot, tensor in zip(named, tensors, strict=False)
            ]
        return results

    def _train(self, parameters: list[Tensor]) -> list[tuple[StepSlot, fx.Node]]:
        """Differentiate the loss, reduce, update: the new weights, states and the gradients."""
        rule = self.rule
        assert rule is not None, "only training has a rule"
        losses = {self.recorder.node_of(tensor): tensor for tensor in self.state.losses}
        node = surviving_loss(losses)
        with _outside_the_recording():
            numbers = [(name, torch.zeros(())) for name in rule.hyper_names]
        hypers = self._placeholders(HYPER, numbers)
        by_name = {
            parameter.name: fake
            for parameter, fake in zip(self.parameters, parameters, strict=True)
        }
        trained = [by_name[name] for name in rule.names]
        _refuse_complex(zip(rule.names, trained, strict=True))
        scaling = rule.loss_scaling_in(hypers)
        result = self._differentiate(losses[node], trained, scaling)
        loss = [(StepSlot(LOSS, 0, "loss"), node)] if self.keep_loss else []
        # A weight the loss does not depend on is not updated, as in torch's optimisers.
        used = {i: gradient for i, gradient in enumerate(result) if gradient is not None}
        self.rule = rule.restricted(list(used))
        self.state.phase = OPTIMISER
        updated = [trained[i] for i in used]
        return loss + self._update(self.rule, updated, list(used.values()), hypers)

    def _differentiate(
        self, loss: Tensor, trained: list[Tensor], scaling: Tensor | float
    ) -> list[Tensor | None]:
        self.state.phase = BACKWARD
        total = scalar_loss(loss)
        if not isinstance(scaling, float) or scaling != 1:
            total = total * scaling
        wanted = self.state.wanted_gradients
        if total.requires_grad and not trained and not wanted:
            raise CaptureError(
                "The optimizer holds none of the model's parameters.",
                hint="make it from the parameters of the very model that trains, not of a copy",
            )
        result: list[Tensor | None] = [None] * (len(trained) + len(wanted))
        if total.requires_grad:
            result = list(torch.autograd.grad(total, [*trained, *wanted], allow_unused=True))
        with torch.no_grad():
            self.wanted_gradients = [
                torch.zeros_like(tensor) if gradient is None else gradient
                for tensor, gradient in zip(wanted, result[len(trained) :], strict=True)
            ]
        places = itertools.count()  # among the weights that are updated, as the rule counts them
        return [
            None if g is None else torch.ops.tremula.gradient(g, next(places))
            for g in result[: len(trained)]
        ]

    def _update(
        self,
        rule: UpdateRule,
        trained: list[Tensor],
        gradients: list[Tensor],
        hypers: list[Tensor],
    ) -> list[tuple[StepSlot, fx.Node]]:
        slot_of = {slot.name: slot for slot in self.slots if slot.kind == PARAMETER}
        named_states = zip(rule.state_names(), self._initial_states(rule, trained), strict=True)
        states = self._placeholders(STATE, list(named_states), owners=rule.state_owners())
        with torch.no_grad():
            new_parameters, new_states = rule.update(trained, gradients, states, hypers)
        node_of = self.recorder.node_of
        results = [
            (slot_of[name], node_of(new))
            for name, new in zip(rule.names, new_parameters, strict=True)
        ]
        of_states = [slot for slot in self.slots if slot.kind == STATE]
        results += [(slot, node_of(new)) for slot, new in zip(of_states, new_states, strict=True)]
        results += [
            (StepSlot(GRADIENT, i, name), node_of(gradient))
            for i, (name, gradient) in enumerate(zip(rule.names, gradients, strict=True))
        ]
        with torch.no_grad():
            scale = rule.next_loss_scale(gradients, hypers, states)
        if scale is not None:
            results.append((StepSlot(HYPER, len(hypers) - 1, "loss_scaling"), node_of(scale)))
        return results

    def _initial_states(self, rule: UpdateRule, trained: list[Tensor]) -> list[Tensor]:
        """The optimiser's states before the first step, as tensors without memory."""
        with _outside_the_recording(), self.fakes:
            return rule.initial_state(trained)


@contextlib.contextmanager
def _swapped(tensors: list[ModelTensor], stand_ins: list[Tensor]) -> Iterator[None]:
    """The user's modules hold the stand-ins inside the block; `kept` puts their own back."""
    for entry, fake in zip(tensors, stand_ins, strict=True):
        _put(entry, fake)
    yield
    changed = _rebound(tensors, stand_ins)
    if changed:
        raise CaptureError(changed[0])


def _put(entry: ModelTensor, tensor: Tensor) -> None:
    for module, name in entry.places:
        tensors_by_name(module, entry.kind)[name] = tensor
        if isinstance(module, nn.RNNBase) and name in module._flat_weights_names:
            module._flat_weights[module._flat_weights_names.index(name)] = tensor


def _rebound(tensors: list[ModelTensor], stand_ins: list[Tensor]) -> list[str]:
    """What forward did to registered tensors that a static program cannot follow."""
    result = []
    for entry, fake in zip(tensors, stand_ins, strict=True):
        word = entry.kind.capitalize()
        for module, name in entry.places:
            if isinstance(module, nn.modules.batchnorm._NormBase):
                continue
            now = tensors_by_name(module, entry.kind).get(name)
            if now is None:
                result.append(
                    f"{word} {name} is removed from the model when calling the forward method."
                )
            elif now is not fake:
                result.append(
                    f"{word} {name} is reassigned within the model when calling the forward method."
                    f" This is not supported. Consider using self.{name}.copy_(src) to copy data"
                    " from a source tensor, where src is the name of the source tensor."
                )
    return result


@contextlib.contextmanager
def _module_paths(model: nn.Module, state: Recording) -> Iterator[None]:
    """Keeps `state.module_path` at the module whose forward runs."""
    paths = {id(module): path for path, module in model.named_modules()}

    def enter(module: nn.Module, _inputs: object) -> None:
        if active() is not state:  # hooks are of the process: another thread runs a module
            return
        around = state.module_path[-1] if state.module_path else type(module).__name__
        state.module_path.append(paths.get(id(module), around))  # a layer of Keras has put its own

    def leave(_module: nn.Module, _inputs: object, _output: object) -> None:
        if active() is state:
            state.module_path.pop()

    hooks = nn.modules.module
    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refuse_complex(trained: Iterable[tuple[str, Tensor]]) -> None:
    """Rules of optimisers are for real numbers; those of a complex weight are other formulas."""
    for name, tensor in trained:
        if tensor.is_complex():
            raise CaptureError(
                f"The parameter {name} is complex: the optimiser updates real parameters only.",
                hint=f"hold torch.view_as_real({name}) as the parameter, and use"
                " torch.view_as_complex of it in forward",
            )


@contextlib.contextmanager
def _plain_names() -> Iterator[None]:
    """Errors name a tensor by the class its author knows."""
    try:
        yield
    except Exception as error:
        error.args = tuple(
            a.replace(_FAKE_NAME, "Tensor") if isinstance(a, str) else a for a in error.args
        )
        raise


@contextlib.contextmanager
def _on_the_device() -> Iterator[None]:
    """Code of the model sees the device of the program; PyTorch below it, that of the fakes."""

    def seen_by_model(device_of_fake: Any) -> property:  # noqa: ANN401 - a property
        def device(fake: FakeTensor) -> torch.device:
            modes = torch.overrides._get_current_function_mode_stack()
            is_asked_by_model = any(isinstance(m, function_rules.FunctionRules) for m in modes)
            return DEVICE if is_asked_by_model else device_of_fake.fget(fake)

        return property(device)

    with (
        wrapped(FakeTensor, "device", seen_by_model),
        replaced_for_all(torch, DEVICE.type, _DEVICE_MODULE),  # for checkpoint() and fork_rng()
    ):
        yield


@contextlib.contextmanager
def _quiet_settings() -> Iterator[None]:
    """Tell libraries that read values, unless they are traced, that they are being traced."""
    complaints = logging.getLogger("torch._subclasses.fake_tensor")  # their errors are raised too
    with (
        replaced_for_all(torch.compiler, "_is_compiling_flag", True),
        replaced_for_all(torch.distributions.Distribution, "_validate_args", False),
        replaced_for_all(complaints, "disabled", True, "torch._subclasses.fake_tensor.log"),
        replaced(transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
    ):
        yield


def _is_said_to_be_causal(
    _mask: Tensor | None, is_causal: bool | None = None, _size: int | None = None
) -> bool:
    """nn.Transformer's question: PyTorch compares values; a mask not said to be causal is used."""
    return is_causal is True


_DEVICE_MODULE = types.SimpleNamespace(
    _initialized=False,  # no generator here whose state to keep
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
)
_FAKE_NAME = FakeTensor.__name__
