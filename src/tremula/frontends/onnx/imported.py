"""An ONNX model as a PyTorch module: what `import_model` returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from tremula.base.errors import suggest
from tremula.frontends.onnx.element_types import tensors_of, widened
from tremula.frontends.onnx.errors import OnnxError
from tremula.frontends.onnx.evaluate import Evaluation, Scope
from tremula.frontends.onnx.graph import NamedValues, OnnxGraph, ValueInfo
from tremula.frontends.onnx.load import LoadedModel, ModelLike, load
from tremula.ir.recorder import DEVICE
from tremula.ir.recording import active


class OnnxModule(nn.Module):
    """forward takes the graph's inputs in order and returns a tuple of its outputs.

    Floating-point initialisers are parameters, others buffers.
    """

    def __init__(self, graph: OnnxGraph):
        super().__init__()
        self.graph = graph
        self.input_names = [v.name for v in graph.inputs if v.name not in graph.initialisers]
        self.output_names = [v.name for v in graph.outputs]
        self.name_of: dict[str, str] = {}  # where each initialiser is registered
        self.others: dict[str, Any] = {}  # of strings
        for name, value in graph.initialisers.items():
            self._register(name, value)

    def _register(self, name: str, value: object) -> None:
        if not isinstance(value, Tensor):
            self.others[name] = value
            return
        place = name.replace(".", "_") or "_"
        while hasattr(self, place):
            place += "_"
        self.name_of[name] = place
        if value.is_floating_point() and value.dtype.itemsize > 1:
            self.register_parameter(place, nn.Parameter(value))
        else:
            self.register_buffer(place, widened(value))

    def initialiser(self, name: str) -> Tensor:
        return getattr(self, self.name_of[name])

    def forward(self, *inputs: object) -> tuple[Any, ...]:
        if len(inputs) != len(self.input_names):
            raise OnnxError(
                f"The model takes {len(self.input_names)} inputs"
                f" ({', '.join(self.input_names)}), got {len(inputs)}."
            )
        result = self.run(dict(zip(self.input_names, inputs, strict=True)), self.output_names)
        return tuple(result.values())

    def run(self, inputs: NamedValues, wanted: Sequence[str]) -> dict[str, Any]:
        """Tensors of the graph by name, whatever node makes them."""
        scope = Scope(self.graph, constants=self.graph.initialisers)
        scope.values.update(self.others)
        scope.values.update({name: getattr(self, place) for name, place in self.name_of.items()})
        scope.values.update(inputs)
        return Evaluation(_device_of(scope.values)).main(self.graph, scope, wanted)


def _device_of(values: NamedValues) -> torch.device | None:
    """The device of a recording that is under way."""
    if active() is not None:
        return DEVICE
    return next((v.device for v in values.values() if isinstance(v, FakeTensor)), None)


@dataclass(frozen=True)
class ImportedModel:
    """A model that runs: as a PyTorch module, or by the names of its tensors."""

    module: OnnxModule
    loaded: LoadedModel

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """What the model takes; initialisers are not among them."""
        graph = self.module.graph
        return tuple(v for v in graph.inputs if v.name not in graph.initialisers)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        return self.module.graph.outputs

    @property
    def proto(self) -> ModelProto:
        return self.loaded.proto

    @property
    def parameters_by_name(self) -> dict[str, Tensor]:
        """Initialisers as the module holds them, by their ONNX names."""
        return {name: self.module.initialiser(name) for name in self.module.name_of}

    @property
    def tensor_names(self) -> list[str]:
        """Everything `run` can give."""
        graph = self.module.graph
        made = [name for node in graph.nodes for name in node.outputs if name]
        return [*(value.name for value in self.inputs), *graph.initialisers, *made]

    def run(self, named_inputs: NamedValues, wanted: Sequence[str]) -> dict[str, Any]:
        """Tensors by name, intermediate ones too; inputs are tensors or arrays."""
        names = self.tensor_names
        for name in wanted:
            if name not in names:
                raise OnnxError(f"The model has no tensor {name!r}.", hint=suggest(name, names))
        self._check(named_inputs)
        values = {name: tensors_of(value) for name, value in named_inputs.items()}
        return self.module.run(values, wanted)

    def _check(self, inputs: NamedValues) -> None:
        known = [value.name for value in self.inputs]
        graph = self.module.graph
        for name in inputs:
            if name not in known and name not in graph.initialisers:
                raise OnnxError(f"The model has no input {name!r}.", hint=suggest(name, known))
        missing = [name for name in known if name not in inputs]
        if missing:
            raise OnnxError(f"The model's input {missing[0]!r} is missing.")


def import_model(
    model: ModelLike, *, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> ImportedModel:
    """An ONNX model, from a file, bytes or a ModelProto, as a PyTorch module.

    `input_shapes` fixes the shapes of inputs whose sizes the model leaves open:

        imported = import_model("model.onnx", input_shapes={"x": (1, 3, 224, 224)})
        (y,) = imported.module(x)
        poptorch.inferenceModel(imported.module)(x)
    """
    shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
    loaded = load(model, shapes)
    return ImportedModel(OnnxModule(loaded.graph), loaded)
