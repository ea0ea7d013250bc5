"""Elements as plain words: codelets that only move bits share them between types of one size."""

from tremula.base.types import (
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONGLONG,
    UNSIGNED_SHORT,
    Type,
)
from tremula.poplar.tensors.tensor import Tensor

_WORD_OF_SIZE = {1: UNSIGNED_CHAR, 2: UNSIGNED_SHORT, 4: UNSIGNED_INT, 8: UNSIGNED_LONGLONG}


def word_type(type: Type) -> Type:
    """The unsigned integer of a type's size."""
    return _WORD_OF_SIZE[type.n_bytes]


def as_words(tensor: Tensor) -> Tensor:
    """A tensor's bits as unsigned integers."""
    return tensor.reinterpret(word_type(tensor.type))
