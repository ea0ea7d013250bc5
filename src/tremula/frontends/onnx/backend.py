"""Tremula as a backend of ONNX: what `onnx.backend.base` asks for.

    import tremula.frontends.onnx.backend as backend
    backend.prepare(model).run([x])

`OnnxBackend` runs node by node, `CompiledBackend` the captured step on this computer, `TileBackend`
the same step on tiles, vertex by vertex.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from tremula.base.errors import suggest
from tremula.frontends.onnx.compiled import CompiledOnnx, compile_model, static_inputs
from tremula.frontends.onnx.element_types import arrays_of, tensors_of
from tremula.frontends.onnx.errors import OnnxError
from tremula.frontends.onnx.graph import NamedValues
from tremula.frontends.onnx.imported import ImportedModel, import_model

EXECUTIONS = ("eager", "host", "tiles")
_N_TILES = 8  # of the chip on which the suite's small models run


class OnnxRep(BackendRep):
    """A prepared model."""

    def __init__(self, imported: ImportedModel, execution: str):
        self.imported = imported
        self.execution = execution
        self._compiled: dict[tuple, CompiledOnnx] = {}

    def run(self, inputs: object, **kwargs: object) -> tuple[Any, ...]:  # noqa: ARG002
        """Outputs, as arrays, for inputs in order or by name."""
        values = {name: tensors_of(value) for name, value in self._named(inputs).items()}
        with torch.no_grad():
            result = self._computed(values)
        kinds = [value.type for value in self.imported.outputs]
        pairs = zip(result, kinds, strict=True)
        return tuple(arrays_of(value, number) for value, number in pairs)

    def _named(self, inputs: object) -> dict[str, Any]:
        names = self.imported.module.input_names
        if isinstance(inputs, Mapping):
            return dict(inputs)
        values = inputs if isinstance(inputs, Sequence) else [inputs]
        if len(values) > len(names):  # with values for initialisers, which are inputs, too
            names = [value.name for value in self.imported.module.graph.inputs]
        if len(values) != len(names):
            raise OnnxError(
                f"The model takes {len(names)} inputs ({', '.join(names)}), got {len(values)}."
            )
        return dict(zip(names, values, strict=True))

    def _computed(self, values: NamedValues) -> Sequence[Any]:
        outputs = self.imported.module.output_names
        if self.execution == "eager":
            result = self.imported.run(values, list(dict.fromkeys(outputs)))
            return [result[name] for name in outputs]
        compiled = self._compiled_for(values)
        return compiled(*(values[name] for name in compiled.input_names))

    def _compiled_for(self, inputs: NamedValues) -> CompiledOnnx:
        static = static_inputs(self.imported.module.graph)
        key = tuple(
            (name, *np.asarray(value).reshape(-1).tolist())
            if name in static
            else (name, tuple(getattr(value, "shape", ())))
            for name, value in inputs.items()
        )
        if key not in self._compiled:
            self._compiled[key] = compile_model(
                self.imported, inputs, on_tiles=self.execution == "tiles", n_tiles=_N_TILES
            )
        return self._compiled[key]


class OnnxBackend(Backend):
    """Node by node, on real tensors: shapes may depend on values."""

    execution: ClassVar[str] = "eager"

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: object) -> OnnxRep:
        """A model that is ready to run; `execution` is eager, host or tiles."""
        if not cls.supports_device(device):
            raise OnnxError(f"The backend has no device {device!r}.", hint="use 'CPU'")
        execution = kwargs.get("execution", cls.execution)
        if execution not in EXECUTIONS:
            hint = suggest(str(execution), EXECUTIONS)
            raise OnnxError(f"There is no execution {execution!r}.", hint=hint)
        return OnnxRep(import_model(model), execution)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: object, device: str = "CPU", **kwargs: object
    ) -> Any:  # noqa: ANN401
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


class CompiledBackend(OnnxBackend):
    """The captured step, on this computer."""

    execution = "host"


class TileBackend(OnnxBackend):
    """The captured step, on tiles."""

    execution = "tiles"


prepare = OnnxBackend.prepare
run_model = OnnxBackend.run_model
supports_device = OnnxBackend.supports_device
