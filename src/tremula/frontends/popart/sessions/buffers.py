"""Arrays of a script, split into micro-batches, and the values of anchors of a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from tremula.base.errors import suggest
from tremula.frontends.popart.data_flow import (
    AnchorReturnType,
    PyStepIO,
    PyStepIOCallback,
    contiguous,
)
from tremula.frontends.popart.enums import AnchorReturnTypeId, SyntheticDataMode
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.tensor_info import TensorInfo
from tremula.frontends.shared.element_types import of_numpy
from tremula.ir.repetition import Repetition


@dataclass(frozen=True)
class StepInput:
    """An input of a session: its type and shape for one micro-batch."""

    id: str
    info: TensorInfo
    dtype: torch.dtype
    is_broadcast: bool = False  # all replicas read the same


# -- inputs ----------------------------------------------------------------------------------------


def micro_batches(
    stepio: PyStepIO | PyStepIOCallback, inputs: Sequence[StepInput], repetition: Repetition
) -> list[list[Tensor]]:
    """The inputs of each micro-batch, in the order in which they run."""
    if isinstance(stepio, PyStepIOCallback):
        return _from_callbacks(stepio, inputs, repetition)
    columns = [_column(stepio, wanted, repetition) for wanted in inputs]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return rows or [[]] * repetition.n_micro_batches


def _column(stepio: PyStepIO, wanted: StepInput, repetition: Repetition) -> list[Tensor]:
    if wanted.id not in stepio.inputs:
        raise popart_exception(
            f"No data for the input {wanted.id!r} in the stepio:"
            f" {suggest(wanted.id, stepio.inputs)}"
        )
    array = stepio.inputs[wanted.id]
    n_copies = 1 if wanted.is_broadcast else repetition.n_replicas
    n_parts = repetition.n_iterations * repetition.n_accumulation * n_copies
    expected = wanted.info.nelms() * n_parts
    if array.size != expected:
        raise popart_exception(
            f"Unexpected number of elements in the input {wanted.id!r}: expected {expected}"
            f" ({repetition.n_iterations} batches × {repetition.n_accumulation} accumulation ×"
            f" {n_copies} replicas × {wanted.info.shape()}), got {array.size} of shape"
            f" {list(array.shape)}"
        )
    parts = _tensor(array, wanted).reshape(n_parts, *wanted.info.shape())
    result = list(parts.unbind(0))
    return [part for part in result for _ in range(repetition.n_replicas // n_copies)]


def _from_callbacks(
    stepio: PyStepIOCallback, inputs: Sequence[StepInput], repetition: Repetition
) -> list[list[Tensor]]:
    rows = []
    for number in range(repetition.n_micro_batches):
        row = []
        for index, wanted in enumerate(inputs):
            if wanted.is_broadcast and number % repetition.n_replicas:
                row.append(rows[-1][index])
                continue
            array = contiguous(stepio.input(wanted.id, False), wanted.id, "input")
            if array.size != wanted.info.nelms():
                raise popart_exception(
                    f"input_callback({wanted.id!r}) gave {array.size} elements, a micro-batch has"
                    f" {wanted.info.nelms()}: {wanted.info.shape()}"
                )
            row.append(_tensor(array, wanted).reshape(wanted.info.shape()).clone())
            stepio.input_complete(wanted.id)
        rows.append(row)
    return rows


def synthetic_micro_batches(
    mode: SyntheticDataMode, inputs: Sequence[StepInput], repetition: Repetition, seed: int
) -> list[list[Tensor]]:
    """Inputs of each micro-batch that are made on the host instead of read from the script."""
    generator = np.random.default_rng(seed)
    make: dict[SyntheticDataMode, Callable] = {
        SyntheticDataMode.Zeros: np.zeros,
        SyntheticDataMode.RandomNormal: generator.standard_normal,
        SyntheticDataMode.RandomUniform: generator.random,
    }
    return [
        [torch.from_numpy(np.asarray(make[mode](i.info.shape()))).to(i.dtype) for i in inputs]
        for _ in range(repetition.n_micro_batches)
    ]


def _tensor(array: np.ndarray, wanted: StepInput) -> Tensor:
    expected = np.dtype(wanted.info.numpy_type())
    if array.dtype != expected and not _narrows_to(array.dtype, expected):
        raise popart_exception(
            f"Type discrepancy for tensor '{wanted.id}'. User provided: {array.dtype} and expected:"
            f" {expected}. Convert the array with astype"
        )
    is_wide = array.dtype in (np.uint16, np.uint32, np.uint64)
    plain = array.astype(np.int64) if is_wide else array
    if not plain.flags.writeable:
        plain = plain.copy()
    return torch.from_numpy(plain).to(wanted.dtype)


def _narrows_to(dtype: np.dtype, expected: np.dtype) -> bool:
    """Whether an input takes such an array: the device has no 64-bit integers."""
    type = of_numpy(dtype) if dtype.kind in "iu" else None
    return type is not None and type.narrowed.numpy_type == expected


def array_of(value: Tensor) -> np.ndarray:
    """A tensor as a NumPy array."""
    value = value.detach().cpu()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


# -- anchors ---------------------------------------------------------------------------------------


def anchor_shape(kind: AnchorReturnType, shape: Sequence[int], repetition: Repetition) -> list[int]:
    """The shape of the array for an anchor, without leading dimensions of size 1."""
    return [n for n in _leading(kind, repetition) if n != 1] + list(shape)


def _leading(kind: AnchorReturnType, repetition: Repetition) -> list[int]:
    if kind.id() in (AnchorReturnTypeId.Final, AnchorReturnTypeId.Sum):
        return [repetition.n_replicas]
    period = kind.rp() if kind.id() is AnchorReturnTypeId.EveryN else 1
    return [repetition.n_iterations // period, repetition.n_accumulation, repetition.n_replicas]


class AnchorValues:
    """The values of one anchored tensor while a step runs."""

    def __init__(self, id: str, kind: AnchorReturnType, info: TensorInfo, repetition: Repetition):
        self.id, self.kind, self.repetition, self.info = id, kind, repetition, info
        shape = (*_leading(kind, repetition), *info.shape())
        self.values = np.zeros(shape, info.numpy_type())

    def put(self, number: int, value: np.ndarray) -> None:
        """Store the value of a micro-batch, if the return type includes it."""
        batch, step, replica = self.repetition.index_of(number)
        kind = self.kind.id()
        value = np.asarray(value).reshape(self.info.shape())
        if kind is AnchorReturnTypeId.Sum:
            self.values[replica] += value
        elif kind is AnchorReturnTypeId.Final:
            self.values[replica] = value  # the last one stays
        elif kind is AnchorReturnTypeId.All:
            self.values[batch, step, replica] = value
        elif (batch + 1) % self.kind.rp() == 0:
            self.values[(batch + 1) // self.kind.rp() - 1, step, replica] = value

    def give(self, stepio: PyStepIO | PyStepIOCallback) -> None:
        """Write the values into the arrays of the script."""
        if isinstance(stepio, PyStepIO):
            self._fill(stepio.outputs)
            return
        n_leading = len(_leading(self.kind, self.repetition))
        for value in self.values.reshape(-1, *self.values.shape[n_leading:]):
            target = stepio.output(self.id)
            target.reshape(-1)[...] = value.reshape(-1)
            stepio.output_complete(self.id)

    def _fill(self, outputs: Mapping[str, np.ndarray]) -> None:
        target = outputs.get(self.id)
        if target is None:
            raise popart_exception(
                f"No array for the anchor {self.id!r} in the stepio: {suggest(self.id, outputs)}"
            )
        if target.size != self.values.size or not target.flags.c_contiguous:
            wanted = anchor_shape(self.kind, self.info.shape(), self.repetition)
            raise popart_exception(
                f"The array for the anchor {self.id!r} must be contiguous and of shape {wanted}"
                f" ({prod(wanted)} elements), got {list(target.shape)} ({target.size})"
            )
        target.reshape(-1)[...] = self.values.reshape(-1)
