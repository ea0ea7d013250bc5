"""The host's copy of weights and states, from and to ONNX models."""

from collections.abc import Mapping

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from tremula.base.errors import suggest
from tremula.frontends.onnx.element_types import tensors_of
from tremula.frontends.popart.builder.builder import BROADCAST_KEY, VARIABLE_KEY
from tremula.frontends.popart.builder.external_data import write_external
from tremula.frontends.popart.data_flow import PyWeightsIO
from tremula.frontends.popart.enums import CommGroupType
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.groups import CommGroup, VariableSettings
from tremula.frontends.popart.sessions.buffers import array_of
from tremula.ir.group_values import GroupValues

STATE_PREFIXES = ("Accl___", "Accl1___", "Accl2___", "Accl3___", "Step___")


class SessionModel:
    """A model as a session takes it: without states of optimisers, one slice of grouped weights."""

    def __init__(self, model: onnx.ModelProto, n_replicas: int):
        self.original = model
        names = {t.name for t in model.graph.initializer}
        self.states = {
            t.name: numpy_helper.to_array(t)
            for t in model.graph.initializer
            if _is_state(t.name, names)
        }
        notes = {entry.key: entry.value for entry in model.metadata_props}
        self.broadcast = set(filter(None, notes.get(BROADCAST_KEY, "").split("\n")))
        self.groupings = _groupings(notes, n_replicas)
        self.whole: dict[str, np.ndarray] = {}  # grouped weights, with all their slices
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model)
        initializers = [
            self._one_slice(t) for t in self.proto.graph.initializer if t.name not in self.states
        ]
        del self.proto.graph.initializer[:]
        self.proto.graph.initializer.extend(initializers)

    def _one_slice(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        if tensor.name not in self.groupings:
            return copy
        self.whole[tensor.name] = numpy_helper.to_array(tensor)
        return numpy_helper.from_array(self.whole[tensor.name][0], tensor.name)


def _is_state(name: str, names: set[str]) -> bool:
    prefix = next((p for p in STATE_PREFIXES if name.startswith(p)), None)
    return prefix is not None and name.removeprefix(prefix) in names


def _groupings(notes: Mapping[str, str], n_replicas: int) -> dict[str, GroupValues]:
    result = {}
    for key, text in notes.items():
        if key.startswith(f"{VARIABLE_KEY}:"):
            kind, size, mode = map(int, text.split())
            settings = VariableSettings(CommGroup(CommGroupType(kind), size), retrievalMode=mode)
            grouping = settings.grouping(n_replicas)
            if grouping is not None and n_replicas > 1:
                result[key.partition(":")[2]] = grouping
    return result


class SessionWeights:
    """Values by id, on the host: what `weightsFromHost` sends and `weightsToHost` fetches."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = dict(tensors)

    def read_into(self, io: PyWeightsIO, states: Mapping[str, np.ndarray]) -> None:
        """Copy values, also those of states of the optimiser, to the arrays of a script."""
        for id, array in io.weights.items():
            value = states[id] if id in states else array_of(self._tensor(id))
            if array.size != value.size:
                raise popart_exception(
                    f"The weight {id!r} has shape {list(value.shape)}, the array for it"
                    f" {list(array.shape)}"
                )
            array.reshape(-1)[...] = value.reshape(-1)

    def write_from(self, io: PyWeightsIO) -> None:
        """Take values from the arrays of a script."""
        for id, array in io.weights.items():
            self.set(id, np.asarray(array))

    def set(self, id: str, array: np.ndarray) -> None:
        """Another value for a weight."""
        tensor = self._tensor(id)
        if array.size != tensor.numel():
            raise popart_exception(
                f"The weight {id!r} has shape {list(tensor.shape)}, got {list(array.shape)}"
            )
        value = tensors_of(np.ascontiguousarray(array))
        assert isinstance(value, Tensor), "an array of numbers is a tensor"
        with torch.no_grad():
            tensor.copy_(value.reshape(tensor.shape))

    def reset(self, model: onnx.ModelProto, *, ignores_others: bool) -> None:
        """Values of another model's initialisers."""
        for tensor in model.graph.initializer:
            if tensor.name in self.tensors:
                self.set(tensor.name, numpy_helper.to_array(tensor))
            elif not ignores_others and not tensor.name.startswith(STATE_PREFIXES):
                raise popart_exception(
                    f"resetHostWeights, no tensor '{tensor.name}' in the session's model:"
                    f" {suggest(tensor.name, self.tensors)}"
                )

    def _tensor(self, id: str) -> Tensor:
        if id not in self.tensors:
            raise popart_exception(f"No weight {id!r}: {suggest(id, self.tensors)}")
        return self.tensors[id]


def written_model(
    original: onnx.ModelProto, weights: SessionWeights, states: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """A model with new values of its weights, and states of the optimiser next to them."""
    model = onnx.ModelProto()
    model.CopyFrom(original)
    initializers = []
    for tensor in model.graph.initializer:
        if tensor.name in weights.tensors:
            value = weights.tensors[tensor.name]
            initializers.append(_with_value(tensor, array_of(value)))
        elif tensor.name not in states and not tensor.name.startswith(STATE_PREFIXES):
            initializers.append(_copy(tensor))
    order = {prefix: i for i, prefix in enumerate(STATE_PREFIXES)}
    named = sorted(states.items(), key=lambda item: order[item[0].partition("___")[0] + "___"])
    made = [numpy_helper.from_array(np.asarray(value), name) for name, value in named]
    write_external(initializers, made)
    del model.graph.initializer[:]
    model.graph.initializer.extend([*initializers, *made])
    return model


def _with_value(tensor: onnx.TensorProto, value: np.ndarray) -> onnx.TensorProto:
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    result = numpy_helper.from_array(np.ascontiguousarray(value.astype(kind)), tensor.name)
    result.external_data.extend(tensor.external_data)
    return result


def _copy(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    return copy
