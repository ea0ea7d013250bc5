"""Tensors of a session by id: their types and shapes, and arrays for those that are anchored."""

from functools import cached_property

import numpy as np
from torch import Tensor

from tremula.base.errors import suggest
from tremula.frontends.onnx.element_types import UNSIGNED, element_type
from tremula.frontends.popart import names
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.sessions.anchors import weight_of
from tremula.frontends.popart.sessions.buffers import anchor_shape
from tremula.frontends.popart.sessions.collector import (
    info_of_tensor,
    optimiser_numbers,
    value_of_optimiser,
)
from tremula.frontends.popart.sessions.engine import SessionEngine
from tremula.frontends.popart.tensor_info import TensorInfo, type_name


class SessionTensors:
    """What scripts ask about tensors of the model, its gradients and its optimiser."""

    def __init__(self, engine: SessionEngine):
        self._engine, self._planned = engine, engine.planned

    def info(self, id: str) -> TensorInfo:
        """Type and shape of any tensor."""
        if id in self._returned:
            return self._returned[id]
        info = self._planned.info(weight_of(id))
        if info is not None:
            return info
        if id in self._planned.anchors.of_optimiser:
            return TensorInfo(np.asarray(value_of_optimiser(id, self._engine.program)))
        types = self._planned.types
        raise popart_exception(f"TensorInfo for '{id}' not found: {suggest(id, types)}")

    @cached_property
    def _returned(self) -> dict[str, TensorInfo]:
        """Types of what the step returns."""
        plan = self._planned.plan
        ids = [*plan.wanted, *(names.GRADIENT + id for id in plan.gradients)]
        results = zip(ids, self._engine.program.results, strict=True)
        return {id: self._info_of_result(id, value) for id, value in results}

    def _info_of_result(self, id: str, value: Tensor) -> TensorInfo:
        """As the step returns it; unsigned integers, which it computes as others, as declared."""
        kind = self._planned.types.get(id)
        if kind is not None and kind.element and element_type(kind.element).tensor_type in UNSIGNED:
            return TensorInfo(type_name(kind.element), [int(n) for n in value.shape])
        return info_of_tensor(value)

    def anchor_arrays(self) -> dict[str, np.ndarray]:
        """Arrays of zeros for all anchors, in their shapes."""
        flow, repetition = self._engine.setup.flow, self._engine.setup.repetition
        infos = {id: self.info(id) for id in flow.anchors()}
        return {
            id: np.zeros(anchor_shape(flow.art(id), info.shape(), repetition), info.numpy_type())
            for id, info in infos.items()
        }

    def of_model(self) -> list[str]:
        """The ids of all tensors of the model."""
        return list(self._planned.imported.tensor_names)

    def ids(self) -> list[str]:
        """The ids of all tensors: of the model, and in training gradients, states and numbers."""
        result = self.of_model()
        if not self._engine.setup.is_training:
            return result
        gradients = [names.GRADIENT + id for id in result if id in self._planned.differentiable]
        program = self._engine.program
        return [*result, *gradients, *program.states(), *optimiser_numbers(program)]
