"""A view of variables as plain data, applied to tensors of a graph and to arrays of indices.

    {"parts": [{"var": 0, "ops": [["slice", 0, 6, 2]]}, …], "ops": [["reverse"]]}

Parts are flattened variables, each changed by its operations, then joined and changed again.
"""

from typing import Any

import numpy as np

from tools.fuzz.case import Case, IllegalCase
from tremula import Tensor, concat

View = dict[str, Any]


def whole(variable: int) -> View:
    return {"parts": [{"var": variable, "ops": []}], "ops": []}


def then(view: View, *ops: list) -> View:
    """The view with more operations behind it."""
    return {"parts": view["parts"], "ops": [*view["ops"], *ops]}


def joined(views: list[View]) -> View:
    """Views behind each other. Each must be one part."""
    parts = [
        {"var": view["parts"][0]["var"], "ops": [*view["parts"][0]["ops"], *view["ops"]]}
        for view in views
    ]
    return {"parts": parts, "ops": []}


# -- as indices ------------------------------------------------------------------------------------


class Layout:
    """Where elements of variables are: one array per type, variables behind each other."""

    def __init__(self, variables: list[Case]):
        self.types = [variable["type"] for variable in variables]
        self.shapes = [tuple(variable["shape"]) for variable in variables]
        self.n_elems: dict[str, int] = {}
        self._indices: list[np.ndarray] = []
        for type, shape in zip(self.types, self.shapes, strict=True):
            begin, n = self.n_elems.get(type, 0), int(np.prod(shape, dtype=np.int64))
            self.n_elems[type] = begin + n
            self._indices.append(np.arange(begin, begin + n).reshape(shape))

    def variable(self, number: int) -> np.ndarray:
        """Indices of a variable, in its shape."""
        if not 0 <= number < len(self._indices):
            raise IllegalCase(f"no variable {number}")
        return self._indices[number]

    def type_of(self, view: View) -> str:
        types = {self.types[part["var"]] for part in view["parts"]}
        if len(types) != 1:
            raise IllegalCase("a view of one type")
        return types.pop()

    def indices(self, view: View) -> np.ndarray:
        """Indices of a view's elements in the array of its type."""
        parts = [_indices(self.variable(part["var"]), part["ops"]) for part in view["parts"]]
        if not parts:
            raise IllegalCase("a view of something")
        self.type_of(view)
        return _indices(np.concatenate(parts) if len(parts) > 1 else parts[0], view["ops"])


def _indices(array: np.ndarray, ops: list) -> np.ndarray:
    if not ops or ops[0][0] != "swap":
        array = array.reshape(-1)
    for name, *args in ops:
        array = _changed_indices(array, name, args)
    return array


def _changed_indices(array: np.ndarray, name: str, args: list) -> np.ndarray:
    n = array.size
    if name == "swap":
        return array.transpose().reshape(-1)
    if name == "reverse":
        return array[::-1]
    if name == "slice" and 0 <= args[0] <= args[1] <= n and args[2] > 0:
        return array[args[0] : args[1] : args[2]]
    if name == "repeat" and args[0] > 0:
        return np.tile(array, args[0])
    if name == "fit" and n > 0 and args[0] > 0:
        return np.resize(array, args[0])
    if name == "at" and 0 <= args[0] < n:
        return array[args[0]].reshape(())
    if name == "shape" and np.prod(args[0], dtype=np.int64) == n:
        return array.reshape(args[0])
    raise IllegalCase(f"{name} {args} of {n} elements")


# -- as tensors ------------------------------------------------------------------------------------


def tensor_of(view: View, variables: list[Tensor]) -> Tensor:
    """The view of a graph's variables."""
    parts = [_tensor(variables[part["var"]], part["ops"]) for part in view["parts"]]
    return _tensor(concat(parts) if len(parts) > 1 else parts[0], view["ops"])


def _tensor(tensor: Tensor, ops: list) -> Tensor:
    if not ops or ops[0][0] != "swap":
        tensor = tensor.flatten()
    for name, *args in ops:
        tensor = _changed_tensor(tensor, name, args)
    return tensor


def _changed_tensor(tensor: Tensor, name: str, args: list) -> Tensor:
    if name == "swap":
        return tensor.dim_shuffle(list(reversed(range(tensor.rank)))).flatten()
    if name == "reverse":
        return tensor.reverse()
    if name == "slice":
        return tensor[args[0] : args[1] : args[2]]
    if name == "repeat":
        return tensor.broadcast(args[0])
    if name == "fit":
        return tensor.broadcast(-(-args[0] // tensor.n_elems))[: args[0]]
    if name == "shape":
        return tensor.reshape(args[0])
    return tensor[args[0]]
