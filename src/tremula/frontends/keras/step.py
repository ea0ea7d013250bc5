"""What a step of a Keras model computes: training, testing or prediction of one batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import keras
import torch
from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight
from torch import Tensor, nn

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.optimiser import KerasRule, rule_of
from tremula.frontends.keras.options import PREDICT, TEST, TRAIN
from tremula.frontends.keras.pipelines.pipeline import KerasPipeline
from tremula.frontends.keras.tracing import ModelVariable, recorded_keras, variables_set_to
from tremula.ir.recording import active


@dataclass(frozen=True)
class BufferOfModule:
    """A buffer of a PyTorch module in a layer, which Keras does not know, like a variable."""

    path: str
    _value: Tensor


class ModelState(nn.Module):
    """The variables of a model for the compiler: trained ones as parameters, others as buffers."""

    def __init__(
        self,
        trained: Sequence[ModelVariable],
        others: Sequence[ModelVariable],
        wrapped: Sequence[nn.Module] = (),
    ):
        """`wrapped` are modules of PyTorch in layers: they hold the same tensors again."""
        super().__init__()
        self.trained, self.others = tuple(trained), tuple(others)
        self.names = _distinct([variable.path for variable in (*trained, *others)])
        for variable, name in zip(trained, self.names, strict=False):
            self._parameters[name] = cast("nn.Parameter", variable._value)
        for variable, name in zip(others, self.names[len(self.trained) :], strict=True):
            is_own = isinstance(variable, BufferOfModule)
            self._buffers[name] = variable._value if is_own else variable._value.detach()
        for number, module in enumerate(wrapped):
            self.add_module(f"wrapped_{number}", module)

    @property
    def variables(self) -> tuple[ModelVariable, ...]:
        """All of them, in the order of `names`."""
        return (*self.trained, *self.others)

    def tensors(self) -> list[Tensor]:
        """Their values: fake tensors while a step is recorded."""
        result = [*self._parameters.values(), *self._buffers.values()]
        assert all(tensor is not None for tensor in result), "every variable has a value"
        return result  # pyright: ignore[reportReturnType]


def write_back(held: ModelState, scope: keras.StatelessScope, before: Sequence[Tensor]) -> None:
    """What layers and metrics assigned, into the buffers of a recorded step."""
    with torch.no_grad():
        for variable, old in zip(held.variables, before, strict=True):
            new = scope.get_current_value(variable)
            if new is not None and new is not old:
                old.copy_(new)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names as they are, with a number behind those that were there before."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return result


@dataclass
class StepOfModel:
    """One kind of step of a model, for batches of one structure."""

    model: keras.Model
    kind: str
    structure: object  # of a batch, with anything as leaves
    result: object = None  # structure of what it returns, known once it is recorded
    pipeline: KerasPipeline | None = None

    def __post_init__(self) -> None:
        _reject_custom_steps(self.model, self.kind)
        model = self.model
        trained = list(model.trainable_variables) if self.kind == TRAIN else []
        others = [*model.variables] if self.kind != PREDICT else [*model.weights, *_seeds(model)]
        if self.kind != PREDICT:
            others += model.metrics_variables
        ids = {id(variable) for variable in (*trained, *_of_optimizer(model))}
        unique = {id(variable): variable for variable in others if id(variable) not in ids}
        wrapped = _wrapped_modules(model)
        fixed = {id(parameter) for module in wrapped for parameter in module.parameters()}
        frozen = [v for v in unique.values() if id(v._value) in fixed]  # parameters nevertheless
        for variable in frozen:
            del unique[id(variable)]
        self.n_trained = len(trained)
        buffers = [
            BufferOfModule(f"{type(module).__name__}/{name}", value)
            for module in wrapped
            for name, value in module.named_buffers()
        ]
        self.held = ModelState([*trained, *frozen], [*unique.values(), *buffers], wrapped)

    def rule(self) -> KerasRule | None:
        """How a step that trains updates its weights."""
        if self.kind != TRAIN:
            return None
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        n, held = self.n_trained, self.held
        return rule_of(optimizer, held.trained[:n], held.names[:n])

    def record(self, flat: list[Tensor]) -> tuple[list[Tensor], None]:
        """Run one batch on fake tensors; flat results."""
        data = keras.tree.pack_sequence_as(self.structure, flat)
        before = self.held.tensors()
        body = {TRAIN: self._train, TEST: self._test, PREDICT: self._predict}[self.kind]
        stages = None if self.pipeline is None else self.pipeline.recorder()
        with recorded_keras(stages), variables_set_to(self.held.variables, before) as scope:
            self.result = body(*unpack_x_y_sample_weight(data))
            outputs = [_tensor(leaf) for leaf in keras.tree.flatten(self.result)]
        write_back(self.held, scope, before)
        return outputs, None

    @property
    def scale(self) -> keras.Variable | None:
        """The variable with the scale of the loss, if the optimiser has one."""
        return getattr(self.model.optimizer, "dynamic_scale", None)

    @property
    def counted(self) -> list[keras.Variable]:
        """Variables that replicas count for themselves."""
        return list(self.model.metrics_variables) if self.model.compiled else []

    def _train(self, x: object, y: object, sample_weight: object) -> dict[str, object]:
        model = self.model
        y_pred = model(x, training=True) if model._call_has_training_arg else model(x)
        loss = self._loss(x, y, y_pred, sample_weight, training=True)
        recording = active()
        assert recording is not None, "steps are recorded"
        recording.losses.clear()
        with torch.no_grad():
            metrics = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        recording.losses[:] = [loss]
        return metrics

    def _test(self, x: object, y: object, sample_weight: object) -> dict[str, object]:
        with torch.no_grad():
            y_pred = self._predict(x, y, sample_weight)
            self._loss(x, y, y_pred, sample_weight, training=False)
            return self.model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _predict(self, x: object, _y: object, _sample_weight: object) -> object:
        model = self.model
        with torch.no_grad():
            return model(x, training=False) if model._call_has_training_arg else model(x)

    def _loss(
        self,
        x: object,
        y: object,
        y_pred: object,
        sample_weight: object,
        *,
        training: bool,
    ) -> Tensor:
        model = self.model
        loss = model._compute_loss(
            x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training
        )
        n = next(leaf for leaf in keras.tree.flatten(x) if leaf is not None).shape[0]
        with torch.no_grad():
            model._loss_tracker.update_state(loss.detach(), sample_weight=n)
        return loss


def _of_optimizer(model: keras.Model) -> list[keras.Variable]:
    return list(model.optimizer.variables) if getattr(model, "optimizer", None) else []


def _wrapped_modules(model: keras.Model) -> list[nn.Module]:
    result = model._flatten_layers(include_self=False)
    return [layer.module for layer in result if isinstance(layer, keras.layers.TorchModuleWrapper)]


def _seeds(model: keras.Model) -> list[keras.Variable]:
    """The states of the layers' random generators."""
    return [v for v in model.variables if is_seed(v)]


def is_seed(variable: ModelVariable) -> bool:
    """Whether a variable is the state of a layer's random generator."""
    return variable.path.endswith("seed_generator_state")


def _tensor(leaf: object) -> Tensor:
    return keras.ops.convert_to_tensor(leaf)  # pyright: ignore[reportReturnType] - of PyTorch here


def _reject_custom_steps(model: keras.Model, kind: str) -> None:
    """A step written by hand assigns and differentiates as it likes: it is not recorded."""
    name = f"{kind}_step"
    own, plain = getattr(type(model), name), getattr(keras.Model, name)
    if own is not plain:
        raise keras_error(
            f"{type(model).__name__} has a {name} of its own; a compiled {kind} step is Keras's.",
            hint=f"override compute_loss or compute_metrics instead of {name}, or build the model"
            " outside IPUStrategy.scope()",
        )
