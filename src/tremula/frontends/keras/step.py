"""What a step of a Keras model computes: training, testing or prediction of one batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import keras
import torch
from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight
from torch import Tensor, nn

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.loops.queues import IPUOutfeedQueue, collecting
from tremula.frontends.keras.loops.tape import recorded_round
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


def write_back(state: ModelState, scope: keras.StatelessScope, before: Sequence[Tensor]) -> None:
    """What layers and metrics assigned, into the buffers of a recorded step."""
    with torch.no_grad():
        for variable, old in zip(state.variables, before, strict=True):
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
    enqueued: list[tuple[IPUOutfeedQueue, object]] = field(default_factory=list)  # with structures

    def __post_init__(self) -> None:
        _check_custom_step(self.model, self.kind, self.pipeline)
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
        self.model_state = ModelState([*trained, *frozen], [*unique.values(), *buffers], wrapped)

    def rule(self) -> KerasRule | None:
        """How a step that trains updates its weights."""
        if self.kind != TRAIN:
            return None
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        n, tensors = self.n_trained, self.model_state
        return rule_of(optimizer, tensors.trained[:n], tensors.names[:n])

    def record(self, flat: list[Tensor]) -> tuple[list[Tensor], None]:
        """Run one batch on fake tensors; flat results."""
        data = keras.tree.pack_sequence_as(self.structure, flat)
        before = self.model_state.tensors()
        stages = None if self.pipeline is None else self.pipeline.recorder()
        with (
            recorded_keras(stages),
            variables_set_to(self.model_state.variables, before) as scope,
            collecting() as self.enqueued,
        ):
            self.result = self._body(data)
            leaves = keras.tree.flatten((self.result, [values for _, values in self.enqueued]))
            outputs = [_detached(_tensor(leaf)) for leaf in leaves]
        write_back(self.model_state, scope, before)
        return outputs, None

    def _body(self, data: object) -> object:
        """Results of a batch: by the model's own step if it has one, else by Keras's."""
        if has_custom_step(self.model, self.kind):
            return self._custom_train(data) if self.kind == TRAIN else self._custom_other(data)
        body = {TRAIN: self._train, TEST: self._test, PREDICT: self._predict}[self.kind]
        return body(*unpack_x_y_sample_weight(data))

    def put_enqueued(
        self, results: Sequence[Sequence[Tensor]], n_replicas: int
    ) -> list[list[Tensor]]:
        """Give queues what the steps of an execution enqueued; flat results without it."""
        n = len(keras.tree.flatten(self.result))
        if self.enqueued:
            structure = [values for _, values in self.enqueued]
            rounds = [keras.tree.pack_sequence_as(structure, list(each[n:])) for each in results]
            for i, (queue, _) in enumerate(self.enqueued):
                for first in range(0, len(rounds), n_replicas):
                    parts = [each[i] for each in rounds[first : first + n_replicas]]
                    queue.put(parts[0] if n_replicas == 1 else _stacked(parts))
        return [list(each[:n]) for each in results]

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
        y_pred = self._call(x, training=True)
        loss = self._loss(x, y, y_pred, sample_weight, training=True)
        recording = active()
        assert recording is not None, "steps are recorded"
        recording.losses.clear()
        with torch.no_grad():
            metrics = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        recording.losses[:] = [loss]
        return metrics

    def _custom_train(self, data: object) -> object:
        """`model.train_step(data)`: its tape marks the loss, its optimiser what it updates."""
        model = self.model
        with recorded_round() as state:
            result = model.train_step(data)
        name = type(model).__name__
        if state.loss is None or state.optimizer is None:
            raise keras_error(
                f"{name}.train_step updates no weights.",
                hint="self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))",
            )
        if state.optimizer is not model.optimizer:
            raise keras_error(
                f"{name}.train_step updates by an optimiser that is not the model's.",
                hint="give it to compile(optimizer=…), and use self.optimizer",
            )
        untouched = {id(v) for v in model.trainable_variables} - {id(v) for v in state.trained}
        if untouched:
            names = [v.path for v in model.trainable_variables if id(v) in untouched]
            raise keras_error(
                f"{name}.train_step leaves {names[0]!r} as it is, which is trainable.",
                hint="update self.trainable_variables, or set layer.trainable = False",
            )
        return result

    def _custom_other(self, data: object) -> object:
        model = self.model
        with torch.no_grad():
            return model.test_step(data) if self.kind == TEST else model.predict_step(data)

    def _test(self, x: object, y: object, sample_weight: object) -> dict[str, object]:
        with torch.no_grad():
            y_pred = self._predict(x, y, sample_weight)
            self._loss(x, y, y_pred, sample_weight, training=False)
            return self.model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _predict(self, x: object, _y: object, _sample_weight: object) -> object:
        with torch.no_grad():
            return self._call(x, training=False)

    def _call(self, x: object, *, training: bool) -> object:
        model = self.model
        return model(x, training=training) if model._call_has_training_arg else model(x)

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


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def _stacked(parts: Sequence[object]) -> object:
    """Values of replicas, one after another."""
    return keras.tree.map_structure(lambda *tensors: torch.stack(tensors), *parts)


def has_custom_step(model: keras.Model, kind: str) -> bool:
    """Whether a model's class overrides `train_step`, `test_step` or `predict_step`."""
    name = f"{kind}_step"
    return getattr(type(model), name) is not getattr(keras.Model, name)


def _check_custom_step(model: keras.Model, kind: str, pipeline: KerasPipeline | None) -> None:
    """A step written by hand is recorded as it is; stages of a pipeline need Keras's."""
    if pipeline is not None and has_custom_step(model, kind):
        raise keras_error(
            f"{type(model).__name__} overrides {kind}_step, and is a pipeline.",
            hint=f"override compute_loss or compute_metrics instead of {kind}_step",
        )
