"""Helpers for tests of modules: run one on arrays, count operations."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import popxl
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.ops.streams import host_store

Weights = Mapping[popxl.Variable, np.ndarray]


def ops_of_type(ops: Iterable[object], op_type: type) -> int:
    """How many operations are of a class of `popart._internal.ir.op`."""
    return sum(isinstance(op, op_type) for op in ops)


class TensorInput:
    """An array that `run_module` passes as a tensor, in a type of PopXL or its own."""

    def __init__(self, data: np.ndarray, dtype: popxl.dtype | None = None):
        self.data, self.dtype = data, dtype

    def to_variable(self) -> popxl.Variable:
        """A variable of the graph that is open."""
        return popxl.variable(self.data, self.dtype or popxl.dtype.as_dtype(self.data))


def run_module(
    module: Module,
    *args: object,
    weights: Weights | Callable[[NamedTensors], Weights] | None = None,
    **kwargs: object,
) -> list[np.ndarray]:
    """What a module makes of its arguments, of which `TensorInput` become tensors.

    `weights` are values for its variables, or a function from the variables to them.

        (y,) = run_module(Linear(2), TensorInput(x), weights=lambda v: {v.weight: w, v.bias: b})
    """
    ir = popxl.Ir()
    with ir.main_graph:
        positional = [_tensor(value) for value in args]
        named = {key: _tensor(value) for key, value in kwargs.items()}
        factories, graph = module.create_graph(*positional, **named)
        variables = factories.init()
        inputs = [t for t in (*positional, *named.values()) if isinstance(t, popxl.Tensor)]
        streams = [host_store(t) for t in graph.bind(variables).call(*inputs)]
    with popxl.Session(ir, "ipu_hw") as session:
        if weights is not None:
            session.write_variables_data(weights(variables) if callable(weights) else weights)
        outputs = session.run()
    return [outputs[stream] for stream in streams]


def _tensor(value: Any) -> Any:
    return value.to_variable() if isinstance(value, TensorInput) else value
