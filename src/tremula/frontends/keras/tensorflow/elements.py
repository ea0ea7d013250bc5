"""Elements of data sets: their types, batches of them, and the order in which they come."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import torch
from torch import Tensor

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.types import TensorSpec, as_dtype, inferred_dtype
from tremula.frontends.shared.element_types import of_numpy

Start = Callable[[], Iterator[object]]


def fetching(start: Start, arrays: object) -> Start:
    """A function that starts elements; numbers of rows become rows."""
    if arrays is None:
        return start

    def rows() -> Iterator[object]:
        for index in start():
            yield keras.tree.map_structure(lambda array, index=index: array[index], arrays)

    return rows


def without_lists(tensors: object) -> object:
    """Lists of numbers are arrays; tuples and dictionaries are structures."""
    if isinstance(tensors, list):
        return as_array(tensors)
    if isinstance(tensors, tuple):
        return tuple(without_lists(each) for each in tensors)
    if isinstance(tensors, Mapping):
        return {key: without_lists(each) for key, each in tensors.items()}
    return tensors


def as_array(value: object) -> object:
    """A value as an element has it: NumPy's array, with TensorFlow's type."""
    if isinstance(value, Tensor | keras.Variable):
        return np.asarray(keras.ops.convert_to_numpy(value))
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray | np.generic):
        is_text = value.dtype.kind == "O" and value.ndim == 0
        return value.item() if is_text else value
    if hasattr(value, "indices") and hasattr(value, "dense_shape"):
        return value  # a sparse tensor
    array = np.asarray(value)
    if array.dtype.kind in "US":
        flat = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1)]
        return np.array(flat, object).reshape(array.shape)
    return array.astype(inferred_dtype(value).as_numpy_dtype)


def as_tensor(array: object) -> object:
    """What a function gets of an element: tensors of numbers; text as it is."""
    type = of_numpy(array.dtype) if isinstance(array, np.ndarray | np.generic) else None
    return torch.as_tensor(array) if type and type.is_shared else array


def called_with(function: Callable[..., object], element: object) -> object:
    args = keras.tree.map_structure(as_tensor, element)
    return function(*args) if isinstance(args, tuple) else function(args)


def mapped(function: Callable[..., object], element: object) -> object:
    result = called_with(function, element)
    if isinstance(result, list):  # TensorFlow makes a tensor of a list
        result = tuple(result)
    return keras.tree.map_structure(as_array, result)


def holds(predicate: Callable[..., object], element: object) -> bool:
    return bool(called_with(predicate, element))


def _stack(parts: Sequence[np.ndarray | bytes]) -> np.ndarray:
    if isinstance(parts[0], bytes):
        return np.array(parts, object)
    return np.stack(parts)


def stacked(chunk: Sequence[object]) -> object:
    try:
        return keras.tree.map_structure(lambda *parts: _stack(parts), *chunk)
    except ValueError as error:
        shapes = [[np.shape(leaf) for leaf in keras.tree.flatten(each)] for each in chunk[:2]]
        raise keras_error(
            f"batch() of elements with different shapes, such as {shapes[0]} and {shapes[-1]}.",
            hint="use padded_batch(), or make them alike in map()",
        ) from error


def batch_size_of(batch_size: int) -> int:
    if int(batch_size) < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size!r}.")
    return int(batch_size)


def chunks_of(
    elements: Iterator[object], size: int, drop_remainder: bool
) -> Iterator[list[object]]:
    while chunk := list(itertools.islice(elements, size)):
        if len(chunk) < size and drop_remainder:
            return
        yield chunk


def padded(chunk: Sequence[object], shapes: object, values: object) -> object:
    columns = list(zip(*(keras.tree.flatten(each) for each in chunk), strict=True))
    wanted = _per_leaf(shapes, len(columns), is_shape=True)
    fills = _per_leaf(values, len(columns), is_shape=False)
    result = [_filled(*each) for each in zip(columns, wanted, fills, strict=True)]
    return keras.tree.pack_sequence_as(chunk[0], result)


def _per_leaf(value: Any, n: int, *, is_shape: bool) -> list[Any]:
    """A shape or a value for every leaf of an element."""
    if value is None:
        return [None] * n
    is_one = (
        not any(isinstance(each, list | tuple) for each in value)
        if is_shape and isinstance(value, list | tuple)
        else not isinstance(value, list | tuple | dict)
    )
    if n == 1 and is_one:
        return [value]
    return [value] * n if is_one else list(value.values() if isinstance(value, dict) else value)


def _filled(arrays: Sequence[np.ndarray], shape: Any, value: object) -> np.ndarray:
    own = [np.shape(array) for array in arrays]
    largest = [max(sizes) for sizes in zip(*own, strict=True)]
    target = largest if shape is None else [
        m if s in (None, -1) else int(s) for m, s in zip(largest, shape, strict=True)
    ]  # fmt: skip
    if any(m > t for m, t in zip(largest, target, strict=True)):
        raise ValueError(f"padded_batch: an element of {largest} does not fit {target}.")
    kind = np.asarray(arrays[0]).dtype
    fill = (b"" if kind.kind == "O" else 0) if value is None else value
    result = np.full((len(arrays), *target), fill, kind)
    for i, array in enumerate(arrays):
        result[(i, *(slice(size) for size in np.shape(array)))] = array
    return result


def packed(structure: object, row: Sequence[object]) -> object:
    return keras.tree.pack_sequence_as(structure, list(row))


def specs_of(types: object, shapes: object, signature: object) -> object:
    if signature is not None:
        return signature
    if types is None:
        raise TypeError("from_generator needs output_signature or output_types.")
    del shapes  # those of the elements are taken as they come
    return types


def typed_element(element: object, specs: object) -> object:
    """An element of a generator in the types that were promised, part by part."""
    if isinstance(specs, Mapping):
        if not isinstance(element, Mapping) or set(element) != set(specs):
            raise ValueError(
                f"the generator gave {_parts(element)}; its types are {sorted(map(str, specs))}."
            )
        return {key: typed_element(value, specs[key]) for key, value in element.items()}
    if isinstance(specs, tuple | list):
        if len(specs) == 1 and not isinstance(element, tuple | dict):
            return _typed_array(element, specs[0])
        if not isinstance(element, tuple) or len(element) != len(specs):
            raise ValueError(f"the generator gave {_parts(element)}; its types are {len(specs)}.")
        return tuple(typed_element(*pair) for pair in zip(element, specs, strict=True))
    return _typed_array(element, specs)


def _parts(element: object) -> str:
    if isinstance(element, Mapping):
        return f"a dictionary of {sorted(map(str, element))}"
    return f"{len(element) if isinstance(element, tuple) else 1} values"


def _typed_array(value: object, spec: object) -> np.ndarray:
    kind = as_dtype(getattr(spec, "dtype", spec))
    array = np.asarray(as_array(value), object if kind == "string" else str(kind))
    if isinstance(spec, TensorSpec) and not spec.shape.is_compatible_with(array.shape):
        raise ValueError(
            f"the generator gave an array of {array.shape}; its shape is {tuple(spec.shape)}."
        )
    return array


# -- iterators -------------------------------------------------------------------------------------


def shuffled(elements: Iterator[object], size: int, seed: tuple[int, int]) -> Iterator[object]:
    rng = np.random.default_rng(seed)
    buffer = list(itertools.islice(elements, size))
    for element in elements:
        i = int(rng.integers(len(buffer)))
        chosen, buffer[i] = buffer[i], element
        yield chosen
    rng.shuffle(buffer)
    yield from buffer


def endless(start: Start) -> Iterator[object]:
    while True:
        is_empty = True
        for element in start():
            is_empty = False
            yield element
        if is_empty:
            return


def interleaved(
    inner: Iterator[Iterator[object]], n_open: int, block_length: int
) -> Iterator[object]:
    running = list(itertools.islice(inner, n_open))
    position = 0
    while running:
        position %= len(running)
        block = list(itertools.islice(running[position], block_length))
        yield from block
        if len(block) == block_length:
            position += 1
            continue
        following = next(inner, None)
        if following is None:
            del running[position]
        else:
            running[position] = following
            position += 1


def saving(
    elements: Iterator[object], saved: list[object], is_complete: list[bool]
) -> Iterator[object]:
    own = []
    for element in elements:
        own.append(element)
        yield element
    saved[:], is_complete[0] = own, True
